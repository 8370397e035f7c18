"""Cross-entropy over the whole catalogue."""

from typing import Any

import keras
from keras import ops

from keras_bft.losses.item_loss import ItemLoss
from keras_bft.losses.item_loss import target_scores
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class FullSoftmax(ItemLoss):
    """Softmax cross-entropy over all items.

    With `s_i` the score of item `i` and `y` the target,

        loss = log sum_{i = 1..num_items} exp(s_i) - s_y

    The scores `(positions, num_items)` are computed once and reduced to their
    log-sum; the target's score comes from its own embedding, so that no
    one-hot tensor and no scatter into a tensor of that size is needed.

    Args:
        name: Name of the loss.

    Examples:

    >>> targets = np.array([[2, 3, 0]])  # 0 is padding and has no loss.
    >>> states, item_embeddings = np.ones((1, 3, 8)), np.zeros((5, 8))
    >>> loss = keras_bft.losses.FullSoftmax()
    >>> round(float(loss.from_states(targets, states, item_embeddings)), 4)
    1.3863

    `model.compile(loss=loss)` trains a model of `keras_bft.models` with it.
    """

    def __init__(self, name: str = "full_softmax") -> None:
        super().__init__(name=name)

    def position_losses(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the cross-entropy of each position, `(positions,)`."""
        logits = ops.matmul(states, ops.transpose(item_embeddings[1:]))
        return ops.logsumexp(logits, axis=-1) - target_scores(
            targets, states, item_embeddings
        )
