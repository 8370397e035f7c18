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
from _retrieval import item_categories  # noqa: E402
from _retrieval import load_interactions  # noqa: E402
from _retrieval import make_parser  # noqa: E402
from _retrieval import parse  # noqa: E402
from _tfrs_towers import Retrieval  # noqa: E402
from _tfrs_towers import Server  # noqa: E402
from keras_bft.data import Interactions  # noqa: E402
from keras_bft.data import LeaveOneOut  # noqa: E402
from keras_bft.data import SequenceDataset  # noqa: E402
from keras_bft.integrations.tfrs import check_wrapped  # noqa: E402

MONITORED = "val_factorized_top_k/top_10_categorical_accuracy"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = make_parser(
        "Trains BFT-SASRec inside TensorFlow Recommenders.", "tfrs-output"
    )
    parser.add_argument(
        "--bayesian",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the query tower filters",
    )
    return parse(parser, argv)


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
