"""Time of a recommendation for one user, full and incremental, and memory.

    KERAS_BACKEND=jax python benchmarks/serving.py --output serving.csv

An event of one user comes, and the best items are asked for. "full" gives
`recommend` the history with the new item. "incremental" appends the item to
the state that is kept of the user and recommends from it, while the window of
`max_length` items has room; "window full" does so where it has none, and the
window is read again. "scores alone" recommends from a state to which nothing
is added: what is left is the catalogue. The contestants answer each request in
turn, so that a machine that slows down slows all of them down. Weights are
those of a new Bayesian SASRec, on which time does not depend.

Memory is how much that of the process grows, at its peak, with the model built:
`recommend` and `rank_targets` for many users and the largest catalogue. It is
read from /proc, so it needs Linux.
"""

import argparse
import csv
import os
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from rich.progress import track

import keras_bft
from measuring.memory import growth

MEMORY_LIMIT = 2 * 2**30
COLUMNS = (
    "backend",
    "num_items",
    "max_length",
    "what",
    "requests",
    "p50_ms",
    "p99_ms",
    "memory_mib",
)
Row = dict[str, object]


def make_model(num_items: int, max_length: int) -> keras.Model:
    """A Bayesian SASRec of the default sizes."""
    return keras_bft.models.SASRec(num_items, max_length=max_length, seed=0)


def measure_latency(
    model: keras.Model, k: int, requests: int, warm_up: int
) -> list[Row]:
    """Milliseconds of each contestant's requests."""
    rng = np.random.default_rng(0)
    length = model.max_length
    shortest = max(1, length // 2)
    times: dict[str, list[float]] = {}
    state = full = None
    for request in track(
        range(warm_up + requests),
        description=f"{model.num_items:,} items, {length} positions",
    ):
        if state is None or len(state.histories[0]) >= length:
            history = rng.integers(1, model.num_items + 1, shortest)
            state = model.start([history])
            full = model.start([rng.integers(1, model.num_items + 1, length)])
        item = rng.integers(1, model.num_items + 1, 1)
        history = np.append(state.histories[0], item)
        answers: dict[str, Callable[[], object]] = {
            "full": lambda h=history: model.recommend([h], k),
            "incremental": lambda s=state, i=item: model.recommend(
                model.append(s, i), k
            ),
            "window full": lambda s=full, i=item: model.recommend(
                model.append(s, i), k
            ),
            "scores alone": lambda s=full: model.recommend(s, k),
        }
        for name, answer in answers.items():
            start = time.perf_counter()
            answer()
            if request >= warm_up:
                seconds = time.perf_counter() - start
                times.setdefault(name, []).append(1000 * seconds)
        state = model.append(state, item)
    return [
        {
            "what": name,
            "requests": requests,
            "p50_ms": float(np.percentile(measured, 50)),
            "p99_ms": float(np.percentile(measured, 99)),
        }
        for name, measured in times.items()
    ]


def measure_memory(model: keras.Model, k: int, num_users: int) -> list[Row]:
    """Growth of the process, what compiling takes included."""
    rng = np.random.default_rng(1)
    model.build((None, model.max_length))
    shape = (num_users, model.max_length)
    histories = list(rng.integers(1, model.num_items + 1, shape))
    targets = rng.integers(1, model.num_items + 1, num_users)
    works: dict[str, Callable[[], object]] = {
        f"recommend, {num_users} users": lambda: model.recommend(
            histories, k, batch_size=num_users
        ),
        f"rank_targets, {num_users} users": (
            lambda: keras_bft.evaluation.rank_targets(
                model, histories, targets, batch_size=num_users, verbose=False
            )
        ),
    }
    return [
        {"what": name, "memory_mib": growth(work) / 2**20}
        for name, work in works.items()
    ]


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--items", type=int, nargs="+", default=[20_000, 1_000_000]
    )
    parser.add_argument("--max-length", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--users", type=int, default=256, help="for memory")
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    warm_up = 5
    if arguments.quick:
        arguments.items, arguments.max_length = [40, 60], [4]
        arguments.k, arguments.requests, arguments.users = 5, 4, 4
        warm_up = 1

    rows: list[Row] = []
    common = {"backend": keras.backend.backend()}
    # First, while nothing that is freed could be used again.
    model = make_model(max(arguments.items), min(arguments.max_length))
    for row in measure_memory(model, arguments.k, arguments.users):
        sizes = {"num_items": model.num_items, "max_length": model.max_length}
        rows.append({**common, **sizes, **row})
    for max_length in arguments.max_length:
        for num_items in arguments.items:
            model = make_model(num_items, max_length)
            sizes = {"num_items": num_items, "max_length": max_length}
            for row in measure_latency(
                model, arguments.k, arguments.requests, warm_up
            ):
                rows.append({**common, **sizes, **row})

    print(
        f"{keras.backend.backend()}, Keras {keras.__version__}, "
        f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, "
        f"k={arguments.k}, {arguments.requests} requests"
    )
    for row in rows:
        size = f"{row['num_items']:>9,} items, {row['max_length']:>4} positions"
        if "memory_mib" in row:
            figures = f"+{row['memory_mib']:.0f} MiB at the peak"
        else:
            figures = (
                f"p50 {row['p50_ms']:7.2f} ms, p99 {row['p99_ms']:7.2f} ms"
            )
        print(f"{size}  {row['what']:<26} {figures}")
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    for row in rows:
        if row.get("memory_mib", 0.0) * 2**20 > MEMORY_LIMIT:
            raise SystemExit(f"More than 2 GiB beside the table: {row}")


if __name__ == "__main__":
    main()
