"""This library's SASRec, plain and Bayesian, in turns like a peer's."""

from collections.abc import Callable

import keras

import keras_bft

VARIANTS = {
    "plain": {"bayesian": False},
    "light": {"form": "light"},
    "full": {"form": "full"},
}
LOSSES = {
    "bce": keras_bft.losses.BCE,
    "softmax": keras_bft.losses.FullSoftmax,
}


def make_model(
    num_items: int, settings: dict, **options: object
) -> keras.Model:
    """A SASRec, compiled if it is to be trained."""
    keras.utils.set_random_seed(0)
    model = keras_bft.models.SASRec(
        num_items,
        max_length=settings["max_length"],
        embedding_dim=settings["embedding_dim"],
        num_layers=settings["num_layers"],
        num_heads=settings["num_heads"],
        dropout=settings["dropout"],
        activation="relu",
        seed=0,
        **options,
    )
    if settings["task"] in LOSSES:
        model.compile(
            keras.optimizers.Adam(settings["learning_rate"]),
            loss=LOSSES[settings["task"]](),
        )
    return model


def make_contestants(
    interactions: keras_bft.data.Interactions, settings: dict
) -> tuple[dict[str, Callable[[], object]], dict]:
    """This library's turns, and what an epoch of them is."""
    split = keras_bft.data.leave_one_out(interactions.sequences())
    models = {
        name: make_model(interactions.num_items, settings, **options)
        for name, options in VARIANTS.items()
    }
    if settings["task"] == "ranking":
        users = len(split.users)
        batches = -(-users // settings["rank_batch_size"])
        targets = users

        def turn(model: keras.Model) -> object:
            return keras_bft.evaluation.rank_targets(
                model,
                split.test_histories,
                split.test_targets,
                filter_seen=False,
                batch_size=settings["rank_batch_size"],
                verbose=False,
            )
    else:
        dataset = keras_bft.data.SequenceDataset(
            split.train,
            max_length=settings["max_length"],
            batch_size=settings["batch_size"],
        )
        users, batches = dataset.num_sequences, len(dataset)
        targets = sum(
            min(len(items) - 1, settings["max_length"])
            for items in split.train
            if len(items) >= 2
        )

        def turn(model: keras.Model) -> object:
            return model.fit(dataset, shuffle=False, verbose=0)

    description = {
        "batches": batches,
        "turn_batches": batches,
        "users": users,
        "targets": targets,
    }
    turns = {
        name: lambda model=model: turn(model) for name, model in models.items()
    }
    return turns, description
