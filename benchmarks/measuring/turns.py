"""Contestants that take turns, and the ratios of their times."""

import csv
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import keras

Row = dict[str, object]


def take_turns(
    contestants: dict[str, Callable[[], object]],
    repeats: int,
    warm_up: int = 1,
) -> dict[str, list[float]]:
    """Seconds of each contestant's calls, each in turn.

    A machine that slows down then slows all of them down.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + repeats):
        for name, work in contestants.items():
            start = time.perf_counter()
            work()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(of: list[float], to: list[float]) -> Row:
    """Median and range of the ratios, turn by turn."""
    values = [a / b for a, b in zip(of, to, strict=True)]
    return {
        "ratio": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
    }


def versions() -> str:
    """Backend, versions and threads of this run, in one line."""
    backend = keras.backend.backend()
    module = __import__(backend)
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    return (
        f"{backend} {module.__version__}, keras {keras.__version__}, "
        f"{cores} cores, OMP_NUM_THREADS {threads}"
    )


def write_rows(rows: list[Row], path: Path | None) -> None:
    """Writes rows to a CSV file, if there is a path."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
