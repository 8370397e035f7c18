"""Runs the tests on every backend: `python -m tests [pytest arguments]`.

A process imports one backend, so each backend gets a process of its own. As
many run at once as there are cores; each line says whose it is.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

# The slowest first. The last one alone runs the tests marked `any_backend`.
BACKENDS = ("jax", "tensorflow", "torch")
# With this pytest exits where none is left, as on the others may be.
NO_TESTS = 5


class Outcome(NamedTuple):
    """What pytest did on one backend."""

    exit_code: int
    passed: int
    failed: int
    skipped: int
    seconds: float


def run(backend: str, arguments: Sequence[str]) -> Outcome:
    """Runs pytest on one backend.

    Args:
        backend: Name of the backend.
        arguments: Arguments of pytest.

    Returns:
        The outcome. Whatever makes pytest exit with an error counts as at
        least one failure: a crash, a bad argument, no test collected (on the
        last backend, which leaves none out).
    """
    start = time.monotonic()
    is_last = backend == BACKENDS[-1]
    chosen = [] if is_last else ["-m", "not any_backend"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--junitxml={report}"]
            + [*chosen, *arguments],
            env=os.environ | {"KERAS_BACKEND": backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                print(f"{backend:<12}{line}", end="", flush=True)
        exit_code = process.returncode
        if exit_code == NO_TESTS and not is_last:
            exit_code = 0
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        if report.exists():
            for suite in ElementTree.parse(report).iter("testsuite"):
                for name in counts:
                    counts[name] += int(suite.get(name, 0))
    failed = counts["failures"] + counts["errors"]
    return Outcome(
        exit_code,
        max(counts["tests"] - failed - counts["skipped"], 0),
        max(failed, 1) if exit_code else failed,
        counts["skipped"],
        time.monotonic() - start,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs all backends, prints a summary and returns the exit code."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(run, BACKENDS, [arguments] * len(BACKENDS)))
    print("=== summary ===")
    for backend, outcome in zip(BACKENDS, outcomes, strict=True):
        print(
            f"{backend:<12}{outcome.passed:>6} passed {outcome.failed:>6} "
            f"failed {outcome.skipped:>6} skipped {outcome.seconds:>8.0f} s"
            + (f"   (exit code {outcome.exit_code})" if outcome.failed else "")
        )
    passed, failed, skipped = (
        sum(getattr(outcome, name) for outcome in outcomes)
        for name in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
