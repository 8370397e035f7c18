"""Seconds per training epoch of plain and Bayesian SASRec, and where they go.

    KERAS_BACKEND=jax python benchmarks/sasrec_epoch.py --data clicks.csv

All variants train on the same batches in one process. Their epochs take turns,
so that a machine that slows down slows all of them down, and each figure is the
median of its epochs. The first epoch of a variant, which compiles, is reported
apart. A part's cost is the median epoch less that of the same model without the
part. Ranking is one pass over the validation users.
"""

import argparse
import csv
import statistics
import sys
import time
from pathlib import Path

import keras

import keras_bft
from keras_bft.losses import SampledSoftmax

VARIANTS = {
    "plain": {"bayesian": False},
    "BFT light": {"form": "light"},
    "BFT full": {"form": "full"},
    "BFT full, token": {"form": "full", "precision": "token"},
    "plain, no dropout": {"bayesian": False, "dropout": 0.0},
    "plain, one layer less": {"bayesian": False, "num_layers": 1},
    "plain, 1 negative": {"bayesian": False, "negatives": 1},
}
PARTS = {
    "the other negatives of the loss": ("plain", "plain, 1 negative"),
    "a Transformer layer": ("plain", "plain, one layer less"),
    "dropout": ("plain", "plain, no dropout"),
    "the light filter, two layers": ("BFT light", "plain"),
    "the full filter, two layers": ("BFT full", "plain"),
}


def make_model(
    num_items: int, negatives: int = 2000, **options: object
) -> keras.Model:
    """Returns a compiled SASRec."""
    keras.utils.set_random_seed(0)
    model = keras_bft.models.SASRec(num_items, seed=0, **options)
    model.compile(keras.optimizers.Adam(2e-3), loss=SampledSoftmax(negatives))
    return model


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="interactions; else made up")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    if arguments.data:
        interactions = keras_bft.data.read_interactions(arguments.data)
    else:
        size = {"num_users": 100, "num_items": 30} if arguments.quick else {}
        made_up = keras_bft.data.synthetic_interactions(**size)
        interactions = made_up.interactions
    repeats = 1 if arguments.quick else arguments.repeats
    split = keras_bft.data.leave_one_out(interactions.sequences())
    dataset = keras_bft.data.SequenceDataset(split.train)
    print(
        f"{interactions}, {len(dataset)} batches of {dataset.batch_size}, "
        f"Keras {keras.__version__} on {keras.backend.backend()}."
    )

    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    ranking: list[float] = []
    models = {
        name: make_model(interactions.num_items, **options)
        for name, options in VARIANTS.items()
    }
    progress = keras.utils.Progbar(
        (repeats + 1) * len(models),
        verbose=int(sys.stdout.isatty()),
        unit_name="epoch",
    )
    for _ in range(repeats + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(dataset, verbose=0)
            seconds[name].append(time.perf_counter() - start)
            progress.add(1)
        start = time.perf_counter()
        keras_bft.evaluation.rank_targets(
            models["plain"],
            split.validation_histories,
            split.validation_targets,
            verbose=False,
        )
        ranking.append(time.perf_counter() - start)

    median = {name: statistics.median(s[1:]) for name, s in seconds.items()}
    rows = [
        (
            name,
            f"{median[name]:.2f}",
            f"{min(epochs[1:]):.2f} to {max(epochs[1:]):.2f}",
            f"{median[name] / median['plain']:.2f}",
            f"{epochs[0]:.1f}",
        )
        for name, epochs in seconds.items()
    ]
    rows.append(
        (
            "ranking all validation users",
            f"{statistics.median(ranking[1:]):.2f}",
            f"{min(ranking[1:]):.2f} to {max(ranking[1:]):.2f}",
            f"{statistics.median(ranking[1:]) / median['plain']:.2f}",
            f"{ranking[0]:.1f}",
        )
    )
    header = ("variant", "s/epoch", "range", "/ plain", "first epoch, s")
    for row in (header, *rows):
        print(f"{row[0]:<30}{row[1]:>9}{row[2]:>18}{row[3]:>9}{row[4]:>16}")
    print("\nCost of a part, seconds per epoch:")
    costs = {part: median[a] - median[b] for part, (a, b) in PARTS.items()}
    for part, cost in sorted(costs.items(), key=lambda item: -item[1]):
        print(f"{part:<34}{cost:>7.2f}")
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])


if __name__ == "__main__":
    main()
