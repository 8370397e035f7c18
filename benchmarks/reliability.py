r"""Does the learned precision tell which items are reliable? Made-up clicks.

    KERAS_BACKEND=jax python benchmarks/reliability.py --seeds 5 \
        --output reliability

Trains SASRec with the filter on `keras_bft.data.synthetic_interactions`, new
data for each seed: a quarter of the clicks is random, and most of these fall on
a tenth of the items. No model is told which. Compared with the share of genuine
clicks on each item that was trained on are

- the learned log prior precision of the item: Pearson and Spearman correlation,
  Pearson correlation given the log of the item's count (what a straight line in
  it leaves of both), and the area under the ROC curve for finding the items
  most of whose clicks are random;
- the log of the item's count, what anyone has without a model.

And for each click of the test users' histories, the area under the ROC curve
for telling genuine from random clicks by each layer's gain and precision. The
folder given by `--output` receives the models, `reliability.csv` with a row for
each seed, and `reliability.png`. Killed at any point, the same command
continues at the last finished epoch.
"""

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure

import keras_bft
from confidence_study.models import trained
from keras_bft.data import SyntheticInteractions
from keras_bft.diagnostics import roc_curve
from keras_bft.diagnostics import trace
from measuring.turns import Row
from measuring.turns import write_rows
from study.runs import Dataset
from study.settings import QUICK
from study.settings import make_grid
from study.settings import make_parser
from study.settings import read
from study.variants import parse_variant

TRACED_CLICKS = ("gain", "posterior_log_precision", "effective_sample_size")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = make_parser("Compares learned precision with true reliability.")
    parser.add_argument("--users", type=int, default=2500)
    parser.add_argument("--items", type=int, default=800)
    parser.set_defaults(
        models=[
            "bft-sasrec",
            "bft-sasrec:prior-counts",
            "bft-sasrec:no-units",
        ],
        loss="full",
        schedule="cosine",
        epochs=40,
        learning_rate=[5e-3],
        dropout=[0.3],
        max_length=20,
        dim=32,
        batch_size=128,
        seeds=5,
        num_traced=500,
        output=Path("reliability"),
    )
    quick = {**QUICK, "seeds": 2, "users": 80, "items": 30}
    arguments = read(parser, argv, quick)
    if arguments.data:
        parser.error("of --data nobody knows the reliability: leave it out")
    if not all(parse_variant(name)[0] for name in arguments.models):
        parser.error("--models takes models with the filter")
    if len(make_grid(arguments)) != 1:
        parser.error("one learning rate, dropout and weight decay each")
    return arguments


def make_data(
    seed: int, users: int, items: int
) -> tuple[Dataset, SyntheticInteractions]:
    """Clicks of a seed, and what is known of them."""
    made_up = keras_bft.data.synthetic_interactions(users, items, seed=seed)
    return Dataset.of(f"synthetic{seed}", made_up.interactions), made_up


def of_items(
    scores: np.ndarray, reliability: np.ndarray, counts: np.ndarray
) -> Row:
    """How far a score of items goes with their reliability."""

    def without_count(x: np.ndarray) -> np.ndarray:
        line = np.polyfit(np.log(counts), x, 1)
        return x - np.polyval(line, np.log(counts))

    rest = without_count(scores)
    # A count has no part beside itself.
    partial = np.nan
    if rest.std() > 1e-6 * scores.std():
        partial = np.corrcoef(rest, without_count(reliability))[0, 1]
    return {
        "pearson": np.corrcoef(scores, reliability)[0, 1],
        "spearman": np.corrcoef(_ranks(scores), _ranks(reliability))[0, 1],
        "pearson_given_count": partial,
        "auc": roc_curve(-scores, reliability < 0.5).auc,
    }


def _ranks(x: np.ndarray) -> np.ndarray:
    """Ranks, those of equal values their mean."""
    _, place, number = np.unique(x, return_inverse=True, return_counts=True)
    return (number.cumsum() - 0.5 * (number - 1))[place]


def of_clicks(
    model: Any, data: Dataset, made_up: SyntheticInteractions, number: int
) -> list[Row]:
    """How well what the layers compute tells genuine from random clicks."""
    length = model.max_length
    histories = data.split.test_histories[:number]
    genuine = _by_user(data, made_up.reliability)[:number]
    items = keras_bft.data.pad_sequences(histories, length)
    # One more than said, as 0 is what the others are padded with.
    known = keras_bft.data.pad_sequences(
        [
            1 + of_user[: len(history)].astype(int)
            for of_user, history in zip(genuine, histories, strict=True)
        ],
        length,
    )
    rows: list[Row] = []
    means = trace(model, items).token_means()
    for index, values in enumerate(means.values()):
        for name in TRACED_CLICKS:
            if name in values:
                curve = roc_curve(values[name], known == 2, items != 0)
                rows.append(
                    {"score": f"layer {index} {name}", "auc": curve.auc}
                )
    return rows


def _by_user(data: Dataset, reliability: np.ndarray) -> list[np.ndarray]:
    """Of the users of the split, whether each click was genuine."""
    users = data.interactions.user_codes
    return [reliability[users == user] for user in data.split.users]


def plot(points: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Learned precision against reliability, a panel for each model."""
    figure = Figure(figsize=(3.4 * len(points), 3.4), layout="constrained")
    panels = figure.subplots(1, len(points), sharex=True, squeeze=False)[0]
    for axes, (name, (reliability, precision)) in zip(
        panels, points.items(), strict=True
    ):
        axes.scatter(reliability, precision, s=9, alpha=0.6, linewidths=0)
        r = np.corrcoef(reliability, precision)[0, 1]
        axes.set(title=f"{name}, r = {r:.2f}", xlabel="share of genuine clicks")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("learned log prior precision of the item")
    return figure


def main(argv: list[str] | None = None) -> None:
    """Trains what is missing, compares, prints and writes."""
    arguments = parse_arguments(argv)
    [settings] = make_grid(arguments)
    rows: list[Row] = []
    points: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for seed in range(arguments.seeds):
        data, made_up = make_data(seed, arguments.users, arguments.items)
        counts = data.split.train_item_counts(data.interactions.num_items)
        clicked = np.flatnonzero(counts[1:] > 0) + 1
        reliability = made_up.item_reliability()[clicked]
        counts = counts[clicked]
        found = of_items(np.log(counts), reliability, counts)
        rows.append({"seed": seed, "model": "", "score": "log count", **found})
        for name in arguments.models:
            model, _ = trained(name, data, seed, settings, arguments.output)
            learned = keras.ops.convert_to_numpy(model.prior(clicked[None]))
            learned = learned[0].mean(axis=-1)
            points.setdefault(name, (reliability, learned))
            new = of_clicks(model, data, made_up, arguments.num_traced)
            found = of_items(learned, reliability, counts)
            new.insert(0, {"score": "item's log prior precision", **found})
            rows += [{"seed": seed, "model": name, **row} for row in new]
    columns = ("pearson", "spearman", "pearson_given_count", "auc")
    for row in rows:
        for column in columns:
            row.setdefault(column, np.nan)
    write_rows(rows, arguments.output / "reliability.csv")
    plot(points).savefig(arguments.output / "reliability.png", dpi=150)
    print_means(rows, columns)


def print_means(rows: list[Row], columns: tuple[str, ...]) -> None:
    """Prints mean and range over the seeds."""
    cases = dict.fromkeys((row["model"], row["score"]) for row in rows)
    for case in cases:
        of_case = [r for r in rows if (r["model"], r["score"]) == case]
        cells = []
        for column in columns:
            values = np.array([row[column] for row in of_case], float)
            if not np.isnan(values).any():
                low, high = values.min(), values.max()
                cells.append(
                    f"{column} {values.mean():.2f} ({low:.2f} to {high:.2f})"
                )
        print(*case, *cells, sep="  ")


if __name__ == "__main__":
    main()
