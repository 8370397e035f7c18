"""The two towers of the TFRS example, its model and what it exports."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

import keras_bft
from keras_bft.integrations.tfrs import Keras3Layer


def item_tower(
    sasrec: keras_bft.models.SASRec, num_categories: int
) -> keras.Model:
    """Items and their categories to vectors, both of shape `(B,)`.

    The table of items is that of the query tower: items that are predicted are
    the same as those that are read.
    """
    item = keras.Input((), dtype="int32", name="item")
    category = keras.Input((), dtype="int32", name="category")
    of_category = keras.layers.Embedding(
        num_categories,
        sasrec.embedding_dim,
        embeddings_initializer="zeros",
        name="category_embedding",
    )
    vectors = sasrec.item_embedding(item) + of_category(category)
    return keras.Model(
        {"item": item, "category": category}, vectors, name="item_tower"
    )


class QueryTower(tf.keras.layers.Layer):
    """Histories `(B, T)`, 0 where there is no item, to their last states."""

    def __init__(self, sasrec: keras_bft.models.SASRec) -> None:
        super().__init__()
        self.sasrec = Keras3Layer(sasrec)

    def states(self, items: tf.Tensor, training: bool = False) -> tf.Tensor:
        """States after every item, `(B, T, D)`."""
        return self.sasrec(items, training=training)

    def call(self, items: tf.Tensor) -> tf.Tensor:
        positions = tf.range(tf.shape(items)[1])
        last = tf.reduce_max(tf.where(items != 0, positions, 0), axis=1)
        return tf.gather(self.states(items), last, batch_dims=1)


class Retrieval(tfrs.Model):
    """Two towers, trained to find the next item among those of the batch.

    Args:
        sasrec: The query tower.
        categories: Category of each item code, `(num_items + 1,)` int.
        item_counts: How often each item occurs in training, of that shape.
    """

    def __init__(
        self,
        sasrec: keras_bft.models.SASRec,
        categories: np.ndarray,
        item_counts: np.ndarray,
    ) -> None:
        super().__init__()
        self.query_tower = QueryTower(sasrec)
        tower = item_tower(sasrec, int(categories.max()) + 1)
        self.item_tower = Keras3Layer(tower)
        self.categories = tf.constant(categories, "int32")
        self.probabilities = tf.constant(
            item_counts / item_counts.sum(), "float32"
        )
        items = tf.data.Dataset.range(1, len(categories)).batch(1024)
        self.task = tfrs.tasks.Retrieval(
            loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
            metrics=tfrs.metrics.FactorizedTopK(
                items.map(lambda ids: (ids, self.item_vectors(ids))),
                ks=(1, 10),
            ),
            remove_accidental_hits=True,
        )

    def item_vectors(
        self, items: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Vectors `(N, D)` of item codes `(N,)`."""
        category = tf.gather(self.categories, items)
        return self.item_tower(
            {"item": items, "category": category}, training=training
        )

    def compute_loss(
        self, batch: tuple[tf.Tensor, tf.Tensor], training: bool = False
    ) -> tf.Tensor:
        """Loss of a batch of histories and next items, both `(B, T)`."""
        history, following = batch
        states = self.query_tower.states(history, training=training)
        # Every position that has a next item is a query.
        queries = tf.boolean_mask(states, following != 0)
        items = tf.boolean_mask(following, following != 0)
        return self.task(
            queries,
            self.item_vectors(items, training=training),
            candidate_ids=tf.cast(items, "int64"),
            candidate_sampling_probability=tf.gather(self.probabilities, items),
            compute_metrics=not training,
        )

    def train_step(
        self, batch: tuple[tf.Tensor, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """A step, without the metrics that only an evaluation computes."""
        return {"loss": super().train_step(batch)["loss"]}

    def scores(self, histories: list[np.ndarray]) -> np.ndarray:
        """Scores of all items, `(len(histories), num_items + 1)`."""
        length = self.query_tower.sasrec.module.max_length
        codes = keras_bft.data.pad_sequences(histories, length)
        table = self.item_vectors(tf.range(len(self.categories)))
        return tf.matmul(
            self.query_tower(codes), table, transpose_b=True
        ).numpy()


class NamedHistories(tf.keras.layers.Layer):
    """The query tower for histories of item names, `""` where there is none."""

    def __init__(self, query_tower: QueryTower, names: list[str]) -> None:
        super().__init__()
        # Item codes are the positions of the names, from 1.
        self.codes = tf.keras.layers.StringLookup(
            vocabulary=names, mask_token="", num_oov_indices=0
        )
        self.query_tower = query_tower

    def call(self, history: tf.Tensor) -> tf.Tensor:
        return self.query_tower(tf.cast(self.codes(history), "int32"))


class Server(tf.Module):
    """Recommends items that are not in the history.

    Args:
        model: The trained model.
        names: Names of the items, in the order of their codes.
        k: Number of items to recommend.
    """

    def __init__(self, model: Retrieval, names: list[str], k: int) -> None:
        super().__init__()
        length = model.query_tower.sasrec.module.max_length
        query = NamedHistories(model.query_tower, names)
        self.index = tfrs.layers.factorized_top_k.BruteForce(query, k)
        self.index.index(
            model.item_vectors(tf.range(1, len(names) + 1)), tf.constant(names)
        )
        self.recommend = tf.function(
            self._recommend,
            [tf.TensorSpec([None, length], tf.string, "history")],
        )
        self.k = k

    def _recommend(self, history: tf.Tensor) -> dict[str, tf.Tensor]:
        scores, items = self.index.query_with_exclusions(
            history, history, k=self.k
        )
        return {"items": items, "scores": scores}

    def save(self, folder: str) -> None:
        """Saves it as a SavedModel."""
        # TensorFlow warns that indices of TFRS have no config. None is needed.
        tf.get_logger().setLevel("ERROR")
        tf.saved_model.save(self, folder, signatures=self.recommend)
