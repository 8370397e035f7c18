"""One training run: resumable, and recorded in a folder of its own."""

import dataclasses
import functools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import keras

import keras_bft
from keras_bft.data import Interactions
from keras_bft.data import LeaveOneOut
from keras_bft.training import ResumableTraining
from keras_bft.training import claim_folder
from keras_bft.training import fingerprint
from keras_bft.training import replacing
from keras_bft.training import with_precision_learning_rate
from keras_bft.training import write_history
from study import item_precision
from study.mechanism import write_context
from study.mechanism import write_mechanism
from study.settings import Settings
from study.variants import make_model
from study.variants import parse_variant

# Users scored at a time: the larger, the fewer sizes of a rest to compile.
SCORED = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions with their split."""

    name: str
    interactions: Interactions
    split: LeaveOneOut

    @classmethod
    def read(cls, path: Path | None, quick: bool) -> "Dataset":
        """Reads a file, or makes interactions up."""
        if path is not None:
            name = path.name.split(".")[0]
            interactions = keras_bft.data.read_interactions(path)
        else:
            size = {"num_users": 60, "num_items": 30} if quick else {}
            made_up = keras_bft.data.synthetic_interactions(**size)
            name, interactions = "synthetic", made_up.interactions
        return cls.of(name, interactions)

    @classmethod
    def of(cls, name: str, interactions: Interactions) -> "Dataset":
        """Splits interactions."""
        split = keras_bft.data.leave_one_out(
            interactions.sequences(), interactions.sequence_timestamps()
        )
        return cls(name, interactions, split)


def make_loss(settings: Settings) -> keras_bft.losses.ItemLoss:
    """Returns the loss of the settings."""
    if settings.loss == "full":
        return keras_bft.losses.FullSoftmax()
    classes = {
        "sampled": keras_bft.losses.SampledSoftmax,
        "gbce": keras_bft.losses.GBCE,
        "bce": keras_bft.losses.BCE,
    }
    return classes[settings.loss](num_negatives=settings.negatives)


def make_optimizer(settings: Settings, steps_per_epoch: int) -> Any:
    """Returns the optimizer of the settings."""
    rate: Any = settings.learning_rate
    if settings.schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(
            rate, settings.epochs * steps_per_epoch
        )
    if settings.weight_decay:
        return keras.optimizers.AdamW(rate, weight_decay=settings.weight_decay)
    return keras.optimizers.Adam(rate)


def make_batches(
    model: Any, split: LeaveOneOut, seed: int, settings: Settings
) -> keras_bft.data.SequenceDataset:
    """Returns the training batches that a model learns from."""
    options: dict[str, Any] = {
        "max_length": settings.max_length,
        "batch_size": settings.batch_size,
        "seed": seed,
    }
    if model.reads_timestamps:
        options["timestamps"] = split.train_timestamps
    if isinstance(model, keras_bft.models.BERT4Rec):
        return keras_bft.data.MaskedItemDataset(
            split.train,
            model.mask_id,
            mask_rate=settings.mask_rate,
            last_rate=settings.last_rate,
            **options,
        )
    return keras_bft.data.SequenceDataset(split.train, **options)


def train(
    model: Any,
    data: Dataset,
    seed: int,
    folder: Path,
    settings: Settings,
    precision_rate: float | None = None,
) -> dict[str, float]:
    """Trains a built model, or what is left of its training.

    With `precision_rate` the precisions have as many times the learning rate.

    Returns:
        What the validation users and the clock say.
    """
    batches = make_batches(model, data.split, seed, settings)
    optimizer = make_optimizer(settings, len(batches))
    if precision_rate is not None:
        optimizer = with_precision_learning_rate(
            optimizer, model, precision_rate
        )
    model.compile(optimizer, make_loss(settings))
    last = settings.schedule == "cosine"
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg@10",
        mode="max",
        patience=settings.epochs if last else settings.patience,
        restore_best_weights=not last,
    )
    training = ResumableTraining(folder / "checkpoint.npz", stopping)
    done = training.epochs_done
    if done:
        print(f"Continuing after epoch {done}.")
    batches.epoch = done
    model.fit(
        batches,
        verbose=1 if sys.stdout.isatty() else 2,
        initial_epoch=done,
        epochs=done if training.stopped else settings.epochs,
        callbacks=[
            keras_bft.evaluation.RankingCallback(
                data.split.validation_histories,
                data.split.validation_targets,
                filter_seen=settings.filter_seen,
                batch_size=SCORED,
                timestamps=(
                    data.split.validation_timestamps
                    if model.reads_timestamps
                    else None
                ),
            ),
            stopping,
            training,
        ],
    )
    write_history(training.history, folder / "history.csv")
    chosen = len(training.history) if last else stopping.best_epoch + 1
    return {
        "val_ndcg@10": training.history[chosen - 1]["val_ndcg@10"],
        "best_epoch": chosen,
        "epochs": training.epochs_done,
        "seconds_per_epoch": statistics.median(
            row["seconds"] for row in training.history
        ),
    }


def claim_run(
    name: str, data: Dataset, seed: int, settings: Settings, output: Path
) -> Path:
    """Returns the folder of a run, `output/data/model/settings/seed`.

    Raises:
        ValueError: If the folder holds a run with other settings.
    """
    # Colons are not allowed in the names of files everywhere.
    folder = output / data.name / name.replace(":", "+") / settings.label
    folder = folder / f"seed{seed}"
    _, backbone, _ = parse_variant(name)
    claim_folder(
        folder,
        {
            **settings.of_model(backbone),
            "model": name,
            "seed": seed,
            "backend": keras.backend.backend(),
            "data": fingerprint(
                data.interactions.user_codes, data.interactions.item_codes
            ),
        },
    )
    return folder


def build(name: str, data: Dataset, seed: int, settings: Settings) -> Any:
    """Returns the model of a run as it is before training."""
    keras.utils.set_random_seed(seed)
    return make_model(
        name,
        data.split.train_item_counts(data.interactions.num_items),
        settings.max_length,
        embedding_dim=settings.dim,
        dropout=settings.dropout,
        seed=seed,
    )


def run(
    name: str, data: Dataset, seed: int, settings: Settings, output: Path
) -> dict[str, float]:
    """Trains and ranks, unless that was done, and returns the summary.

    The folder `output/data/model/settings/seed` receives `history.csv`,
    `ranks.csv.gz` (each test user's rank), `mechanism.csv` and `context.csv`
    (gains and precisions, where the model has them), and `summary.json`, which
    marks the run as finished.

    Raises:
        ValueError: If the folder holds a run with other settings.
    """
    folder = claim_run(name, data, seed, settings, output)
    interactions, split = data.interactions, data.split
    bayesian, backbone, options = parse_variant(name)
    print(f"\n{data.name}: {name}, seed {seed}, {settings.label}", flush=True)
    summary = folder / "summary.json"
    if summary.exists():
        print("Finished before.")
        return json.loads(summary.read_text())
    model = build(name, data, seed, settings)
    rate = options.get("precision_rate")
    values = train(model, data, seed, folder, settings, rate)
    scorer = model
    predictive = options.get("predictive")
    if predictive == "item_precision":
        scorer = functools.partial(item_precision.score, model)
    elif predictive is not None:
        scorer = functools.partial(model.score, predictive=predictive)
    ranking = keras_bft.evaluation.rank_targets(
        scorer,
        split.test_histories,
        split.test_targets,
        filter_seen=settings.filter_seen,
        batch_size=SCORED,
        users=interactions.user_ids[split.users],
        timestamps=split.test_timestamps if model.reads_timestamps else None,
        verbose=False,
    )
    ranking.to_csv(folder / "ranks.csv.gz")
    reports = bayesian or options.get("gated_attention")
    # The traced batches hold items alone.
    if reports and not model.reads_timestamps:
        write_mechanism(
            model,
            split.test_histories,
            split.train_item_counts(interactions.num_items),
            settings.num_traced,
            folder,
        )
        if backbone == "sasrec":
            write_context(
                model, split.test_histories, settings.num_traced, folder
            )
    values |= {f"test_{k}": v for k, v in ranking.summary().items()}
    with replacing(summary) as part:
        part.write_text(json.dumps(values, indent=2))
    (folder / "checkpoint.npz").unlink()
    print(", ".join(f"{name} {value:.4g}" for name, value in values.items()))
    return values
