r"""The paper's recommendation study on your own data, as one command.

    KERAS_BACKEND=jax python benchmarks/reproduce.py --data clicks.csv \
        --models sasrec bft-sasrec hstu bft-hstu --seeds 3 --output study

For each data set and model: every point of the grid of learning rate, dropout
and weight decay is trained with seed 0, the point with the best validation
NDCG@10 is trained with the other seeds, and its test users are ranked among
all items. A model and its counterpart without the filter get the same loss,
the same grid and the same seeds. The folder given by `--output` receives one
folder for each run and

    report.md       tables: overall, cold start, mechanism, ablations, context
    *.png           the same as figures

Killed at any point, the same command continues at the last finished epoch;
with more models, data or seeds it trains only what is missing.
"""

import argparse
import sys
from pathlib import Path

import keras

from study.report import write_report
from study.results import save_item_counts
from study.runs import Dataset
from study.runs import run
from study.settings import Settings
from study.settings import make_grid
from study.settings import parse_arguments


def train_all(
    data: Dataset,
    name: str,
    grid: list[Settings],
    arguments: argparse.Namespace,
) -> None:
    """Tunes a model with seed 0 and trains the best point with all seeds."""
    results = [
        run(name, data, 0, settings, arguments.output)["val_ndcg@10"]
        for settings in grid
    ]
    best = grid[results.index(max(results))]
    if len(grid) > 1:
        print(f"{data.name}: {name} validates best with {best.label}.")
    for seed in range(1, arguments.seeds):
        run(name, data, seed, best, arguments.output)


def main(argv: list[str] | None = None) -> None:
    """Trains what is missing and writes the report."""
    arguments = parse_arguments(argv)
    paths: list[Path | None] = list(arguments.data) or [None]
    if not arguments.report_only:
        arguments.output.mkdir(parents=True, exist_ok=True)
        command = " ".join(sys.argv[1:] if argv is None else argv)
        with (arguments.output / "commands.txt").open("a") as file:
            file.write(f"KERAS_BACKEND={keras.backend.backend()} {command}\n")
        grid = make_grid(arguments)
        for path in paths:
            data = Dataset.read(path, arguments.quick)
            print(f"{data.name}: {data.interactions}, {len(grid)} settings.")
            save_item_counts(
                data.split.train_item_counts(data.interactions.num_items),
                arguments.output / data.name,
            )
            for name in arguments.models:
                train_all(data, name, grid, arguments)
    print(f"Report: {write_report(arguments.output)}")


if __name__ == "__main__":
    main()
