"""Command line of the study, and the settings of one run."""

import argparse
import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.variants import expand

NEGATIVES = {"full": None, "sampled": 2000, "gbce": 256, "bce": 1}
QUICK = {
    "epochs": 1,
    "dim": 8,
    "max_length": 6,
    "batch_size": 32,
    "num_traced": 32,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides the result of a run, besides data, model and seed."""

    loss: str
    negatives: int | None
    epochs: int
    patience: int
    schedule: str
    max_length: int
    dim: int
    batch_size: int
    dropout: float
    learning_rate: float
    weight_decay: float
    filter_seen: bool
    num_traced: int
    mask_rate: float
    last_rate: float

    @property
    def label(self) -> str:
        """Name of the folder of the runs with these settings."""
        label = (
            f"{self.loss}-dropout{self.dropout:g}-lr{self.learning_rate:g}"
            f"-decay{self.weight_decay:g}"
        )
        if self.schedule == "cosine":
            label += f"-cosine{self.epochs}"
        return label

    def of_model(self, backbone: str) -> dict[str, Any]:
        """The settings that a model's training reads, by name."""
        values = dataclasses.asdict(self)
        if backbone != "bert4rec":
            del values["mask_rate"], values["last_rate"]
        return values


def make_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser of what models are trained, on what and how."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, nargs="+", default=[], help="files; else made up")
    add(
        "--models",
        nargs="+",
        default=["sasrec", "bft-sasrec"],
        help="sasrec, bert4rec or hstu, with `bft-` before it for the filter "
        "and options after colons (`bft-sasrec:light`); `ablations` for all "
        "of bft-sasrec, `bft-sasrec:unscaled:ablations` for all of that model",
    )
    add("--seeds", type=int, default=1, help="number of seeds, from 0")
    add("--loss", choices=list(NEGATIVES), default="sampled")
    add("--negatives", type=int, help="if not given, 2000, 256 or 1 by loss")
    add("--epochs", type=int, default=100, help="at most")
    add("--patience", type=int, default=8, help="epochs without improvement")
    add(
        "--schedule",
        choices=["constant", "cosine"],
        default="constant",
        help="of the learning rate; cosine trains all epochs and keeps the "
        "last, so that chance has no part in when a run stops",
    )
    add("--max-length", type=int, default=50, help="newest items read")
    add("--dim", type=int, default=64, help="channels of the model")
    add("--batch-size", type=int, default=256)
    for name, value, what in (
        ("dropout", 0.5, "dropout"),
        ("learning-rate", 2e-3, "of Adam"),
        ("weight-decay", 0.0, "of AdamW, decoupled"),
    ):
        text = f"{what}; several values make a grid, chosen on validation"
        add(f"--{name}", type=float, nargs="+", default=[value], help=text)
    add("--mask-rate", type=float, default=0.2, help="of BERT4Rec's training")
    add(
        "--last-rate",
        type=float,
        default=0.1,
        help="share of BERT4Rec's rows with the last item masked alone",
    )
    add("--include-seen", dest="filter_seen", action="store_false")
    add("--num-traced", type=int, default=1024, help="users of the mechanism")
    add("--output", type=Path, default=Path("study"))
    add("--quick", action="store_true", help="tiny data and models as defaults")
    return parser


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line of the study."""
    parser = make_parser(
        "Trains recommenders with and without the filter on any data and "
        "writes tables and figures."
    )
    parser.add_argument(
        "--report-only", action="store_true", help="train nothing"
    )
    return read(parser, argv)


def read(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    quick: Mapping[str, Any] = QUICK,
) -> argparse.Namespace:
    """Reads a command line, with other defaults if it says `--quick`."""
    arguments = parser.parse_args(argv)
    if arguments.quick:
        parser.set_defaults(**quick)
        arguments = parser.parse_args(argv)
    if arguments.negatives is None:
        arguments.negatives = NEGATIVES[arguments.loss]
    elif arguments.loss == "full":
        parser.error("--negatives has no meaning with --loss full")
    try:
        arguments.models = expand(arguments.models)
    except ValueError as error:
        parser.error(str(error))
    return arguments


def make_grid(arguments: argparse.Namespace) -> list[Settings]:
    """Returns the settings of every point of the grid."""
    names = [field.name for field in dataclasses.fields(Settings)]
    values = {name: getattr(arguments, name) for name in names}
    tuned = ("dropout", "learning_rate", "weight_decay")
    return [
        Settings(**values | dict(zip(tuned, point, strict=True)))
        for point in itertools.product(*(values[name] for name in tuned))
    ]
