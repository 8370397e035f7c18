r"""Trains a BFT-SASRec query tower with the retrieval layers of keras-rs.

    python examples/keras_rs_retrieval.py
    python examples/keras_rs_retrieval.py --data clicks.csv \
        --items items.csv --output clicks
    python examples/keras_rs_retrieval.py --output clicks --ask ITEM ITEM ...

The query tower reads a user's history; the item tower has an item's id and its
category, and is the same for the items that are read. They are trained to find
the next item among those of the batch: the negatives' scores are corrected for
how often they are drawn, accidental hits are removed, and of the rest the
hardest are kept. Once with the filter and once without, all else being equal,
and compared by ranking every user's last item among all items. Runs on any
backend of Keras. The folder given by `--output` receives

    bft.keras, plain.keras  the towers, which Keras loads on any backend
    interactions/           the interactions, whose codes the towers read
    metrics.json            what was measured

`--ask` loads the towers with the filter and recommends items after a history.
Without `--data` the interactions are made up. Without `--items` the category of
an item is how popular it is. Needs `pip install "keras-bft[keras-rs]"`.
"""

import argparse
import json
import sys

import keras
import keras_rs
import numpy as np

import keras_bft
from _keras_rs_towers import TwoTowers
from _retrieval import item_categories
from _retrieval import load_interactions
from _retrieval import make_parser
from _retrieval import parse
from keras_bft.data import LeaveOneOut
from keras_bft.evaluation import Ranking
from keras_bft.models import SASRec

MODELS = {"plain": False, "BFT": True}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = make_parser(
        "Trains BFT-SASRec with the layers of keras-rs.", "keras-rs-output"
    )
    add = parser.add_argument
    add("--hard-negatives", type=int, default=200, help="kept of a batch")
    add("--ask", nargs="+", metavar="ITEM", help="a history, oldest first")
    return parse(parser, argv)


def train(
    towers: TwoTowers, split: LeaveOneOut, arguments: argparse.Namespace
) -> None:
    """Trains until the validation metric stops rising."""
    dataset = keras_bft.data.SequenceDataset(
        split.train,
        max_length=arguments.max_length,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
    )
    towers.compile(keras.optimizers.Adam(arguments.learning_rate))
    towers.fit(
        dataset,
        shuffle=False,  # The dataset shuffles, by its own seed.
        epochs=arguments.epochs,
        verbose=1 if sys.stdout.isatty() else 2,
        callbacks=[
            keras_bft.evaluation.RankingCallback(
                split.validation_histories, split.validation_targets
            ),
            keras.callbacks.EarlyStopping(
                "val_ndcg@10",
                mode="max",
                patience=arguments.patience,
                restore_best_weights=True,
            ),
        ],
    )


def run(
    name: str,
    categories: np.ndarray,
    counts: np.ndarray,
    split: LeaveOneOut,
    arguments: argparse.Namespace,
) -> Ranking:
    """Trains a model, saves its towers and ranks the test targets."""
    print(f"\n{name}")
    keras.utils.set_random_seed(arguments.seed)
    sasrec = SASRec(
        len(categories) - 1,
        max_length=arguments.max_length,
        embedding_dim=arguments.dim,
        dropout=arguments.dropout,
        bayesian=MODELS[name],
        item_features={"categorical": categories[:, None]},
        seed=arguments.seed,
    )
    train(TwoTowers(sasrec, counts, arguments.hard_negatives), split, arguments)
    sasrec.save(arguments.output / f"{name.lower()}.keras")
    return keras_bft.evaluation.rank_targets(
        sasrec,
        split.test_histories,
        split.test_targets,
        users=split.users,
        verbose=sys.stdout.isatty(),
    )


def ask(arguments: argparse.Namespace, history: list[str]) -> None:
    """Prints what the saved towers recommend, and the scores."""
    interactions = keras_bft.data.Interactions.load(
        arguments.output / "interactions"
    )
    sasrec = keras.saving.load_model(arguments.output / "bft.keras")
    names = interactions.item_ids.astype(str).tolist()
    unknown = sorted(set(history) - set(names))
    if unknown:
        raise SystemExit(f"Unknown items: {', '.join(unknown)}.")
    codes = np.array([names.index(item) + 1 for item in history], "int32")
    # What the history holds is left out of as many more.
    index = keras_rs.layers.BruteForceRetrieval(
        k=min(arguments.k + len(set(history)), len(names))
    )
    index.update_candidates(
        sasrec.item_table()[1:], np.arange(1, len(names) + 1, dtype="int32")
    )
    newest = codes[None, -sasrec.max_length :]
    state = sasrec.predict(newest, verbose=0)[:, -1]
    scores, items = map(keras.ops.convert_to_numpy, index(state))
    new = ~np.isin(items[0], codes)
    for item, score in zip(
        items[0, new][: arguments.k], scores[0, new], strict=False
    ):
        print(f"{names[item - 1]}\t{score:.4f}")


def main(argv: list[str] | None = None) -> None:
    """Trains, evaluates, saves and asks what was saved."""
    arguments = parse_arguments(argv)
    if arguments.ask:
        ask(arguments, arguments.ask)
        return
    interactions = load_interactions(arguments)
    split = keras_bft.data.leave_one_out(interactions.sequences())
    counts = split.train_item_counts(interactions.num_items)
    categories = item_categories(arguments.items, interactions, counts)
    backend = keras.backend.backend()
    print(
        f"{interactions}, {categories.max()} categories of items, Keras on "
        f"{backend}."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    interactions.save(arguments.output / "interactions")
    rankings = {
        name: run(name, categories, counts, split, arguments) for name in MODELS
    }
    table = keras_bft.evaluation.comparison_table(
        *rankings.values(), names=("plain", "BFT")
    )
    print(f"\n{table}\n")
    metrics = {name: ranking.summary() for name, ranking in rankings.items()}
    (arguments.output / "metrics.json").write_text(
        json.dumps(metrics, indent=1)
    )
    history = interactions.decode(split.test_histories[0]).astype(str).tolist()
    print(f"Asked anew, after {' '.join(history[-5:])}:", flush=True)
    ask(arguments, history)
    print(f"Written to {arguments.output}: towers, interactions, metrics.")


if __name__ == "__main__":
    main()
