r"""Trains BFT-SASRec as the query tower of a TensorFlow Recommenders model.

    python examples/tfrs_retrieval.py
    python examples/tfrs_retrieval.py --data clicks.csv --items items.csv \
        --output clicks

The query tower reads a user's history; the item tower has an item's id and its
category. The model is a `tfrs.Model` with the usual retrieval task and metrics,
trained by `tf.keras`; the towers are Keras 3. It is evaluated by ranking every
user's last item among all items, and exported. The folder given by `--output`
receives

    server/             a SavedModel that recommends; TensorFlow alone runs it
    query_tower.keras   the towers, which Keras loads on any backend
    item_tower.keras
    checkpoint/         a `tf.train.Checkpoint` of model and optimizer
    metrics.json        what was measured

Without `--data` the interactions are made up. Without `--items` the category of
an item is how popular it is. Needs `pip install "keras-bft[tfrs]"`.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Before anything uses TensorFlow, which reads it once.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_bft  # noqa: E402
from _tfrs_towers import Retrieval  # noqa: E402
from _tfrs_towers import Server  # noqa: E402
from keras_bft.data import Interactions  # noqa: E402
from keras_bft.data import LeaveOneOut  # noqa: E402
from keras_bft.data import SequenceDataset  # noqa: E402
from keras_bft.integrations.tfrs import check_wrapped  # noqa: E402

QUICK = {"epochs": 2, "dim": 8, "max_length": 8, "batch_size": 32}
MONITORED = "val_factorized_top_k/top_10_categorical_accuracy"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description="Trains BFT-SASRec inside TensorFlow Recommenders.",
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
    add("--k", type=int, default=10, help="items that the server recommends")
    add(
        "--bayesian",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the query tower filters",
    )
    add("--output", type=Path, default=Path("tfrs-output"))
    add("--quick", action="store_true", help="tiny data and a tiny model")
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


def training_batches(dataset: SequenceDataset) -> tf.data.Dataset:
    """The batches of a `SequenceDataset`, another order in each epoch."""

    def epoch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for index in range(len(dataset)):
            yield dataset[index]
        dataset.on_epoch_end()

    ids = tf.TensorSpec([dataset.batch_size, None], tf.int32)
    return (
        tf.data.Dataset.from_generator(epoch, output_signature=(ids, ids))
        .apply(tf.data.experimental.assert_cardinality(len(dataset)))
        .prefetch(1)
    )


def validation_batches(
    split: LeaveOneOut, arguments: argparse.Namespace
) -> tf.data.Dataset:
    """Histories, with the held-out item after the last one alone."""
    histories = keras_bft.data.pad_sequences(
        split.validation_histories, arguments.max_length
    )
    targets = np.zeros_like(histories)
    last = np.count_nonzero(histories, axis=1) - 1
    targets[np.arange(len(targets)), last] = split.validation_targets
    return tf.data.Dataset.from_tensor_slices((histories, targets)).batch(256)


def train(
    model: Retrieval, split: LeaveOneOut, arguments: argparse.Namespace
) -> None:
    """Trains until the validation metric stops rising."""
    dataset = SequenceDataset(
        split.train,
        max_length=arguments.max_length,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
    )
    model.compile(tf.keras.optimizers.Adam(arguments.learning_rate))
    model.fit(
        training_batches(dataset),
        epochs=arguments.epochs,
        validation_data=validation_batches(split, arguments),
        verbose=1 if sys.stdout.isatty() else 2,
        callbacks=[
            tf.keras.callbacks.EarlyStopping(
                MONITORED,
                mode="max",
                patience=arguments.patience,
                restore_best_weights=True,
            )
        ],
    )


def export(
    model: Retrieval, interactions: Interactions, arguments: argparse.Namespace
) -> None:
    """Saves the server, the towers and a checkpoint."""
    output = arguments.output
    names = [str(item) for item in interactions.item_ids]
    Server(model, names, arguments.k).save(str(output / "server"))
    model.query_tower.sasrec.module.save(output / "query_tower.keras")
    model.item_tower.module.save(output / "item_tower.keras")
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(
        str(output / "checkpoint" / "trained")
    )


def main(argv: list[str] | None = None) -> None:
    """Trains, evaluates, exports and asks the exported model."""
    arguments = parse_arguments(argv)
    interactions = load_interactions(arguments)
    num_items = interactions.num_items
    if num_items < arguments.k + arguments.max_length:
        # TFRS takes that many items before it leaves out those of the history.
        raise SystemExit(
            f"{num_items} items are too few for --k {arguments.k} and "
            f"--max-length {arguments.max_length}, which may be {num_items} "
            "together."
        )
    split = keras_bft.data.leave_one_out(interactions.sequences())
    counts = split.train_item_counts(num_items)
    categories = item_categories(arguments.items, interactions, counts)
    print(f"{interactions}, {categories.max()} categories of items.")

    keras.utils.set_random_seed(arguments.seed)
    sasrec = keras_bft.models.SASRec(
        num_items,
        max_length=arguments.max_length,
        embedding_dim=arguments.dim,
        dropout=arguments.dropout,
        bayesian=arguments.bayesian,
        seed=arguments.seed,
    )
    sasrec.build((None, arguments.max_length))
    model = Retrieval(sasrec, categories, counts)
    check_wrapped(model)
    train(model, split, arguments)

    ranking = keras_bft.evaluation.rank_targets(
        model.scores,
        split.test_histories,
        split.test_targets,
        verbose=sys.stdout.isatty(),
    )
    metrics = ranking.summary()
    print("Test, items of the history filtered:")
    print(
        "\n".join(f"  {name:<8} {value:.4f}" for name, value in metrics.items())
    )
    export(model, interactions, arguments)
    (arguments.output / "metrics.json").write_text(
        json.dumps(metrics, indent=1)
    )

    history = [
        str(item) for item in interactions.decode(split.test_histories[0])
    ]
    command = [
        sys.executable,
        str(Path(__file__).parent / "tfrs_query.py"),
        str(arguments.output / "server"),
        *history[-arguments.max_length :],
    ]
    print(f"Asked anew, after {' '.join(history[-5:])}:", flush=True)
    subprocess.run(command, check=True)
    print(
        f"Written to {arguments.output}: server, towers, checkpoint, metrics."
    )


if __name__ == "__main__":
    main()
