"""Command line, interactions and item categories of the retrieval examples."""

import argparse
import csv
from pathlib import Path

import numpy as np

import keras_bft
from keras_bft.data import Interactions

QUICK = {"epochs": 2, "dim": 8, "max_length": 8, "batch_size": 32}


def make_parser(description: str, output: str) -> argparse.ArgumentParser:
    """Returns a parser of what the examples have in common."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, help="interactions, as `examples/sasrec.py` reads")
    add("--items", type=Path, help="CSV with the columns item and category")
    add("--epochs", type=int, default=30, help="at most")
    add("--patience", type=int, default=5, help="epochs without improvement")
    add("--seed", type=int, default=0)
    add("--max-length", type=int, default=50, help="newest items read")
    add("--dim", type=int, default=64, help="channels of the towers")
    add("--dropout", type=float, default=0.2)
    add("--learning-rate", type=float, default=2e-3)
    add("--batch-size", type=int, default=64, help="histories in a batch")
    add("--k", type=int, default=10, help="number of items to recommend")
    add("--output", type=Path, default=Path(output))
    add("--quick", action="store_true", help="tiny data and a tiny model")
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: list[str] | None
) -> argparse.Namespace:
    """Reads the command line; what it gives beats `--quick`."""
    arguments = parser.parse_args(argv)
    if arguments.quick:
        parser.set_defaults(**QUICK)
        arguments = parser.parse_args(argv)
    return arguments


def load_interactions(arguments: argparse.Namespace) -> Interactions:
    """Reads the interactions or makes them up."""
    if arguments.data is not None:
        return keras_bft.data.read_interactions(arguments.data)
    size = {"num_users": 150, "num_items": 60} if arguments.quick else {}
    return keras_bft.data.synthetic_interactions(**size).interactions


def item_categories(
    path: Path | None, interactions: Interactions, counts: np.ndarray
) -> np.ndarray:
    """Category of each item code, `(num_items + 1,)`; 0 is that of padding."""
    if path is None:
        # Bands of popularity: 0, 1, 2 to 3, 4 to 7 training clicks and so on.
        return np.append(0, 1 + np.ceil(np.log2(counts[1:] + 1)).astype(int))
    with open(path, newline="") as file:
        of_item = {row["item"]: row["category"] for row in csv.DictReader(file)}
    names = [str(item) for item in interactions.item_ids]
    missing = [name for name in names if name not in of_item]
    if missing:
        raise SystemExit(
            f"{path} has no category for {len(missing)} items, such as "
            f"{missing[:3]}."
        )
    known = sorted(set(of_item.values()))
    return np.array([0] + [1 + known.index(of_item[name]) for name in names])
