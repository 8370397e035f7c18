"""A small TFRS retrieval model with Keras 3 towers, and clicks for it."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

import keras_bft
from keras_bft.integrations.tfrs import Keras3Layer

NUM_ITEMS = 20
LENGTH = 4
DIM = 8


def clicks(num: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Histories, padded at the left, and the item that comes next."""
    rng = np.random.default_rng(0)
    histories = rng.integers(1, NUM_ITEMS + 1, size=(num, LENGTH))
    targets = histories[:, -1] % NUM_ITEMS + 1
    histories[::3, 0] = 0
    return histories.astype("int32"), targets.astype("int32")


def dataset(num: int = 64, batch_size: int = 16) -> tf.data.Dataset:
    """Batches of `{"history", "item"}`, always in the same order."""
    histories, items = clicks(num)
    return tf.data.Dataset.from_tensor_slices(
        {"history": histories, "item": items}
    ).batch(batch_size, drop_remainder=True)


def query_tower(dropout: float = 0.0, **options) -> keras.Model:
    """BFT-SASRec, histories `(B, LENGTH)` to last states `(B, DIM)`."""
    sasrec = keras_bft.models.SASRec(
        NUM_ITEMS,
        max_length=LENGTH,
        embedding_dim=DIM,
        num_layers=1,
        dropout=dropout,
        seed=1,
        **options,
    )
    items = keras.Input((LENGTH,), dtype="int32")
    return keras.Model(items, sasrec(items)[:, -1], name="query_tower")


def item_tower(**options) -> keras.Model:
    """Item ids `(B,)` to embeddings `(B, DIM)`."""
    return keras.Sequential(
        [
            keras.Input((), dtype="int32"),
            keras.layers.Embedding(NUM_ITEMS + 1, DIM, **options),
            keras.layers.Dense(DIM),
        ],
        name="item_tower",
    )


class TwoTowers(tfrs.Model):
    """Retrieval with wrapped towers, as in the tutorials of TFRS."""

    def __init__(self, query, item, metrics=True, **task_options):
        super().__init__()
        self.query_tower = Keras3Layer(query)
        self.item_tower = Keras3Layer(item)
        if metrics:
            candidates = tf.data.Dataset.range(1, NUM_ITEMS + 1).batch(5)
            task_options["metrics"] = tfrs.metrics.FactorizedTopK(
                candidates.map(lambda ids: tf.cast(ids, tf.int32)).map(
                    lambda ids: (ids, self.item_tower(ids))
                ),
                ks=(1, 3),
            )
        self.task = tfrs.tasks.Retrieval(**task_options)

    def call(self, features):
        return self.query_tower(features["history"])

    def compute_loss(self, features, training=False):
        return self.task(
            self.query_tower(features["history"], training=training),
            self.item_tower(features["item"], training=training),
            candidate_ids=features["item"],
            compute_metrics=not training,
        )


def new_model(dropout: float = 0.0, **options) -> TwoTowers:
    """Two towers, not compiled; always the same initial weights."""
    keras.utils.set_random_seed(0)
    return TwoTowers(query_tower(dropout), item_tower(), **options)
