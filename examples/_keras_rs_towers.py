"""The two towers of the keras-rs example, and how they are trained."""

from typing import Any

import keras
import keras_rs
import numpy as np
from keras import ops

import keras_bft


class TwoTowers(keras.Model):
    """Learns to find the next item among those of the batch.

    Args:
        sasrec: The query tower. The item tower is its `item_embedding`.
        item_counts: How often each item occurs in training,
            `(num_items + 1,)`.
        num_hard_negatives: Number of negatives kept for each position.
    """

    def __init__(
        self,
        sasrec: keras_bft.models.SASRec,
        item_counts: np.ndarray,
        num_hard_negatives: int,
    ) -> None:
        super().__init__()
        self.sasrec = sasrec
        self.probabilities = (item_counts / item_counts.sum()).astype("float32")
        self.correct = keras_rs.layers.SamplingProbabilityCorrection()
        self.mine = keras_rs.layers.HardNegativeMining(num_hard_negatives)

    def call(self, histories: Any, training: bool = False) -> Any:
        """States after every item, `(B, T, D)`."""
        return self.sasrec(histories, training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Mean loss of the positions whose next item `y` is not 0."""
        items = ops.reshape(y, (-1,))
        queries = ops.reshape(y_pred, (-1, self.sasrec.embedding_dim))
        vectors = self.sasrec.item_embedding(items, training=training)
        logits = self.correct(
            ops.matmul(queries, ops.transpose(vectors)),
            ops.take(self.probabilities, items),
        )
        place = ops.arange(ops.shape(items)[0])
        labels = ops.cast(place[:, None] == place, "float32")
        # The layer of keras-rs for this leaves them in.
        logits = keras_bft.losses.remove_accidental_hits(logits, labels, items)
        logits, labels = self.mine(logits, labels)
        losses = ops.categorical_crossentropy(labels, logits, from_logits=True)
        real = ops.cast(items != 0, "float32")
        return ops.sum(losses * real) / ops.maximum(ops.sum(real), 1.0)

    def score(self, histories: list[np.ndarray]) -> np.ndarray:
        """Scores of all items, `(len(histories), num_items + 1)`."""
        return self.sasrec.score(histories)
