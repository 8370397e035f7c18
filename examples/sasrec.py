r"""Trains plain and Bayesian-filtering SASRec side by side and compares them.

    python examples/sasrec.py
    python examples/sasrec.py --data clicks.csv --loss sampled --epochs 100 \
        --batch-size 256 --dropout 0.5 --seeds 0 1 --output clicks

Both models have the same architecture, loss, batches, seeds and settings; the
filter is the only difference. Each trains until its validation NDCG@10 stops
rising, and its best weights rank every user's last item among all items. The
folder given by `--output` receives, besides one folder for each run with the
model (`model.keras`), the training history and every user's rank,

    summary.csv       the printed table
    comparison.png    HR@10 by how often the target occurs, and the training
    interactions/     the interactions with the ids that item codes stand for

The same command continues where it was stopped, at the last finished epoch.
Without `--data` the interactions are made up; the defaults suit these.
"""

import argparse
import statistics
import sys
from pathlib import Path

import keras

import keras_bft
from _comparison_plot import plot_comparison
from _sasrec_arguments import parse_arguments
from keras_bft.data import Interactions
from keras_bft.data import LeaveOneOut
from keras_bft.evaluation import Ranking
from keras_bft.training import ResumableTraining
from keras_bft.training import claim_folder
from keras_bft.training import fingerprint
from keras_bft.training import read_history
from keras_bft.training import replacing
from keras_bft.training import write_history

MODELS = {"plain": False, "BFT": True}
# Users scored at a time: the larger, the fewer sizes of a rest to compile.
SCORED = 512


def load_interactions(arguments: argparse.Namespace) -> Interactions:
    """Reads the interactions or makes them up."""
    if arguments.data is not None:
        return keras_bft.data.read_interactions(arguments.data)
    size = {"num_users": 150, "num_items": 40} if arguments.quick else {}
    return keras_bft.data.synthetic_interactions(**size).interactions


def make_loss(arguments: argparse.Namespace) -> keras_bft.losses.ItemLoss:
    """Returns the loss that `--loss` names."""
    if arguments.loss == "full":
        return keras_bft.losses.FullSoftmax()
    classes = {
        "sampled": keras_bft.losses.SampledSoftmax,
        "gbce": keras_bft.losses.GBCE,
        "bce": keras_bft.losses.BCE,
    }
    return classes[arguments.loss](num_negatives=arguments.negatives)


def make_model(
    bayesian: bool, seed: int, num_items: int, arguments: argparse.Namespace
) -> keras.Model:
    """Returns a compiled SASRec with the filter or without."""
    keras.utils.set_random_seed(seed)
    model = keras_bft.models.SASRec(
        num_items,
        max_length=arguments.max_length,
        embedding_dim=arguments.dim,
        feed_forward_dim=arguments.dim,
        dropout=arguments.dropout,
        dropout_mode=arguments.dropout_mode,
        bayesian=bayesian,
        form=arguments.form,
        carry_units=arguments.carry_units,
        scale_embeddings=arguments.scale_embeddings,
        seed=seed,
    )
    model.compile(
        keras.optimizers.Adam(arguments.learning_rate),
        loss=make_loss(arguments),
    )
    # Continuing a training needs the variables before the first batch.
    model.build((None, arguments.max_length))
    return model


def train(
    model: keras.Model,
    seed: int,
    split: LeaveOneOut,
    folder: Path,
    arguments: argparse.Namespace,
) -> None:
    """Trains a model, or what is left of its training, and saves it."""
    dataset = keras_bft.data.SequenceDataset(
        split.train,
        max_length=arguments.max_length,
        batch_size=arguments.batch_size,
        seed=seed,
    )
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg@10",
        mode="max",
        patience=arguments.patience,
        restore_best_weights=True,
    )
    training = ResumableTraining(folder / "checkpoint.npz", stopping)
    if training.epochs_done:
        print(f"Continuing after epoch {training.epochs_done}.")
    dataset.epoch = training.epochs_done
    model.fit(
        dataset,
        verbose=1 if sys.stdout.isatty() else 2,
        shuffle=False,  # The dataset shuffles, by its own seed.
        initial_epoch=training.epochs_done,
        # A training that had stopped early only gets its best weights back.
        epochs=training.epochs_done if training.stopped else arguments.epochs,
        callbacks=[
            keras_bft.evaluation.RankingCallback(
                split.validation_histories,
                split.validation_targets,
                filter_seen=not arguments.include_seen,
                batch_size=SCORED,
            ),
            stopping,
            training,
        ],
    )
    seconds = statistics.median(row["seconds"] for row in training.history)
    print(
        f"Best epoch {stopping.best_epoch + 1} of {training.epochs_done}: "
        f"validation NDCG@10 {stopping.best:.4f}; {seconds:.1f} s an epoch."
    )
    write_history(training.history, folder / "history.csv")
    model.save(folder / "model.keras")


def run_folder(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    """Returns the folder of a run."""
    return arguments.output / f"{name.lower()}-seed{seed}"


def run(
    name: str,
    seed: int,
    interactions: Interactions,
    split: LeaveOneOut,
    arguments: argparse.Namespace,
) -> Ranking:
    """Trains a model and ranks the test targets, unless that was done."""
    folder = run_folder(name, seed, arguments)
    ranks = folder / "ranks.csv"
    print(f"\n{name}, seed {seed}")
    if ranks.exists():
        print(f"Finished before, see {folder}.")
        return Ranking.from_csv(ranks)
    folder.mkdir(exist_ok=True)
    model = make_model(MODELS[name], seed, interactions.num_items, arguments)
    train(model, seed, split, folder, arguments)
    ranking = keras_bft.evaluation.rank_targets(
        model,
        split.test_histories,
        split.test_targets,
        filter_seen=not arguments.include_seen,
        batch_size=SCORED,
        users=interactions.user_ids[split.users],
        verbose=sys.stdout.isatty(),
    )
    # The file marks the run as finished, so it appears only when whole.
    with replacing(ranks) as part:
        ranking.to_csv(part)
    (folder / "checkpoint.npz").unlink()
    return ranking


def main(argv: list[str] | None = None) -> None:
    """Trains, compares, prints and saves."""
    arguments = parse_arguments(argv)
    interactions = load_interactions(arguments)
    split = keras_bft.data.leave_one_out(interactions.sequences())
    settings = vars(arguments) | {
        "data": fingerprint(
            interactions.user_codes,
            interactions.item_codes,
            interactions.user_ids.astype(str),
            interactions.item_ids.astype(str),
        ),
        "backend": keras.backend.backend(),
        "keras_bft": keras_bft.__version__,
    }
    for name in ("output", "seeds", "quick"):
        # Another seed only adds runs, and `quick` is in what it sets.
        del settings[name]
    try:
        claim_folder(arguments.output, settings)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    interactions.save(arguments.output / "interactions")
    print(f"{interactions}, Keras on {keras.backend.backend()}.")

    rankings = {
        name: {
            f"seed {seed}": run(name, seed, interactions, split, arguments)
            for seed in arguments.seeds
        }
        for name in MODELS
    }
    counts = split.train_item_counts(interactions.num_items)
    lengths = [len(history) for history in split.test_histories]
    strata = [
        keras_bft.evaluation.quartile_strata(
            counts[split.test_targets], "target's training count"
        ),
        keras_bft.evaluation.quartile_strata(lengths, "history length"),
    ]
    table = keras_bft.evaluation.comparison_table(
        *rankings.values(), names=("plain", "BFT"), strata=strata
    )
    print(f"\nLoss {arguments.loss}. {table}\n")
    table.to_csv(arguments.output / "summary.csv")
    histories = {
        name: [
            read_history(run_folder(name, seed, arguments) / "history.csv")
            for seed in arguments.seeds
        ]
        for name in MODELS
    }
    plot_comparison(
        rankings, strata[0], histories, arguments.output / "comparison.png"
    )
    print(f"Written to {arguments.output}: summary.csv, comparison.png, runs.")


if __name__ == "__main__":
    main()
