"""Binary cross-entropy with sampled negatives, as in SASRec."""

from typing import Any

import keras
from keras import ops

from keras_bft.losses._negatives import check_num_negatives
from keras_bft.losses._negatives import draw_other_items
from keras_bft.losses._negatives import negative_losses
from keras_bft.losses.item_loss import ItemLoss
from keras_bft.losses.item_loss import target_scores
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class BCE(ItemLoss):
    """Binary cross-entropy of the target against sampled negatives.

    With `s_y` the score of the target and `j` over `num_negatives` items drawn
    for each position, uniformly and with replacement from all items but the
    target,

        loss = -log sigmoid(s_y) - sum_j log(1 - sigmoid(s_j))

    With one negative this is the loss of SASRec (Kang and McAuley, 2018),
    which leaves out all items of the user instead of the target alone. It is a
    sum over the `num_negatives + 1` terms; `GBCE` is a mean over them.

    Args:
        num_negatives: Negatives for each position, a positive integer.
            Defaults to `1`.
        name: Name of the loss.

    Examples:

    >>> targets = np.array([[2, 3, 0]])  # 0 is padding and has no loss.
    >>> states, item_embeddings = np.ones((1, 3, 8)), np.zeros((5, 8))
    >>> loss = keras_bft.losses.BCE(num_negatives=1)
    >>> round(float(loss.from_states(targets, states, item_embeddings)), 4)
    1.3863

    `model.compile(loss=loss)` trains a model of `keras_bft.models` with it.
    """

    def __init__(self, num_negatives: int = 1, name: str = "bce") -> None:
        super().__init__(name=name)
        self.num_negatives = check_num_negatives(num_negatives)

    def position_losses(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the binary cross-entropy of each position."""
        num_items = item_embeddings.shape[0] - 1
        negatives = draw_other_items(
            targets, num_items, self.num_negatives, seed
        )
        positive = target_scores(targets, states, item_embeddings)
        # -log sigmoid(x) = softplus(-x)
        return ops.softplus(-positive) + negative_losses(
            states, item_embeddings, negatives
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the loss."""
        config = super().get_config()
        config.update({"num_negatives": self.num_negatives})
        return config
