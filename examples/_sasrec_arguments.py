"""Command line of the SASRec example."""

import argparse
from pathlib import Path

NEGATIVES = {"sampled": 2000, "gbce": 256, "bce": 1}
QUICK = {"epochs": 2, "dim": 8, "max_length": 8, "batch_size": 32}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description="Trains plain and BFT SASRec and compares them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        help="lines of `user item item ...` (.txt) or a table with the columns "
        "user, item and time (.csv, .tsv, .parquet); .gz is understood",
    )
    add("--loss", choices=["full", "sampled", "gbce", "bce"], default="full")
    add(
        "--negatives",
        type=int,
        help="negatives of the loss; if not given, 2000 shared by a batch "
        "(sampled), 256 a position (gbce) or 1 a position (bce)",
    )
    add("--epochs", type=int, default=30, help="at most")
    add("--patience", type=int, default=8, help="epochs without improvement")
    add("--seeds", type=int, nargs="+", default=[0], help="one run each")
    add("--max-length", type=int, default=50, help="newest items read")
    add("--dim", type=int, default=64, help="channels of the model")
    add("--dropout", type=float, default=0.2)
    add("--learning-rate", type=float, default=2e-3)
    add("--batch-size", type=int, default=64)
    add("--form", choices=["light", "full"], default="full")
    for name in ("carry-units", "scale-embeddings"):
        dest = name.replace("-", "_")
        text = f"`{dest}=False`, see `keras_bft.models.SASRec`"
        add(f"--no-{name}", dest=dest, action="store_false", help=text)
    add(
        "--dropout-mode",
        choices=["inverted", "renormalized"],
        default="inverted",
        help="attention dropout of both models",
    )
    add(
        "--include-seen",
        action="store_true",
        help="rank the items of the history, too",
    )
    add("--output", type=Path, default=Path("sasrec-output"))
    add(
        "--quick",
        action="store_true",
        help="tiny made-up data, a tiny model and two epochs as the defaults",
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        parser.set_defaults(**QUICK)
        arguments = parser.parse_args(argv)
    if arguments.negatives is None:
        arguments.negatives = NEGATIVES.get(arguments.loss)
    elif arguments.loss not in NEGATIVES:
        parser.error("--negatives has no meaning with --loss full")
    return arguments
