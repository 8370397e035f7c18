"""Generalised binary cross-entropy, as in gSASRec."""

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
class GBCE(ItemLoss):
    """Binary cross-entropy with a calibrated weight of the target.

    Training on few negatives makes the target look likelier than it is. gBCE
    raises the target's probability to a power `beta` to undo that (the paper's
    formula). With `k = num_negatives`, `s_y` the score of the target and `j`
    over `k` items drawn for each position, uniformly and with replacement from
    all items but the target,

        alpha = k / (num_items - 1)
        beta  = alpha (t (1 - 1 / alpha) + 1 / alpha)
        loss  = -(beta log sigmoid(s_y) + sum_j log(1 - sigmoid(s_j))) / (k + 1)

    A `calibration` of `t = 0` gives `beta = 1`, plain binary cross-entropy
    (`BCE` divided by `k + 1`); `t = 1` gives `beta = alpha`, for which the
    paper proves the optimum's `sigmoid(s_i)` to be the items' probabilities.

    Args:
        num_negatives: Negatives `k` for each position, a positive integer, at
            most the number of items less one. The paper uses 256.
        calibration: The calibration `t`, from 0 to 1. Defaults to `0.75`.
        name: Name of the loss.

    Examples:

    >>> targets = np.array([[2, 3, 0]])  # 0 is padding and has no loss.
    >>> states, item_embeddings = np.ones((1, 3, 8)), np.zeros((5, 8))
    >>> loss = keras_bft.losses.GBCE(num_negatives=2, calibration=0.0)
    >>> round(float(loss.from_states(targets, states, item_embeddings)), 4)
    0.6931

    `model.compile(loss=loss)` trains a model of `keras_bft.models` with it.

    Reference:

    - Petrov and Macdonald, "gSASRec: Reducing Overconfidence in Sequential
      Recommendation Trained with Negative Sampling", RecSys 2023.
    """

    def __init__(
        self,
        num_negatives: int,
        calibration: float = 0.75,
        name: str = "gbce",
    ) -> None:
        super().__init__(name=name)
        if (
            not isinstance(calibration, int | float)
            or isinstance(calibration, bool)
            or not 0.0 <= calibration <= 1.0
        ):
            raise ValueError(
                "`calibration` must be a number from 0 to 1. "
                f"Received: calibration={calibration!r}"
            )
        self.num_negatives = check_num_negatives(num_negatives)
        self.calibration = float(calibration)

    def position_losses(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the generalised binary cross-entropy of each position."""
        num_items = item_embeddings.shape[0] - 1
        negatives = draw_other_items(
            targets, num_items, self.num_negatives, seed
        )
        if self.num_negatives > num_items - 1:
            raise ValueError(
                "`num_negatives` must be at most the number of items less "
                f"one, {num_items - 1} for this catalogue. "
                f"Received: num_negatives={self.num_negatives}"
            )
        alpha = self.num_negatives / (num_items - 1)
        # alpha (t (1 - 1 / alpha) + 1 / alpha), multiplied out
        beta = 1.0 - self.calibration * (1.0 - alpha)
        positive = target_scores(targets, states, item_embeddings)
        # -log sigmoid(x) = softplus(-x)
        losses = beta * ops.softplus(-positive) + negative_losses(
            states, item_embeddings, negatives
        )
        return losses / (self.num_negatives + 1)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the loss."""
        config = super().get_config()
        config.update(
            {
                "num_negatives": self.num_negatives,
                "calibration": self.calibration,
            }
        )
        return config
