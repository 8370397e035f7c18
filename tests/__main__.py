"""Runs the tests on every backend: `python -m tests [pytest arguments]`.

A process imports one backend, so each backend gets processes of its own: two,
each for a part of the suite, if the arguments name no path. As many run at once
as there are cores; each line says whose it is.
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
# With this pytest exits where none is left.
NO_TESTS = 5
# Of about the same length, so that no core is idle for long in the end.
PARTS = (("tests/models",), ("--ignore=tests/models", "tests"))


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
        least one failure: a crash, a bad argument. No test left is none.
    """
    start = time.monotonic()
    chosen = [] if backend == BACKENDS[-1] else ["-m", "not any_backend"]
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
        if exit_code == NO_TESTS:
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


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several parts."""
    codes, *counts = zip(*outcomes, strict=True)
    # A process that was killed has a negative one.
    return Outcome(next(filter(None, codes), 0), *map(sum, counts))


def main(arguments: Sequence[str]) -> int:
    """Runs all backends, prints a summary and returns the exit code."""
    start = time.monotonic()
    names_paths = any(Path(x.split("::")[0]).exists() for x in arguments)
    parts: Sequence[Sequence[str]] = ((),) if names_paths else PARTS
    jobs = [(backend, part) for part in parts for backend in BACKENDS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(
            pool.map(lambda job: run(job[0], [*job[1], *arguments]), jobs)
        )
    outcomes = [joined(done[i :: len(BACKENDS)]) for i in range(len(BACKENDS))]
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
    print(
        f"{passed} passed, {failed} failed, {skipped} skipped in "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
