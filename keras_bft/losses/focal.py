"""Focal cross-entropy for integer labels."""

from typing import Any

import keras
from keras import ops

from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class SparseCategoricalFocalCrossentropy(keras.losses.Loss):
    """Cross-entropy that counts well predicted labels less.

    With `p` the probability of the label,

        loss = -(1 - p)^gamma log p

    At `gamma=0` it is the cross-entropy. Keras has the same for one-hot labels,
    `keras.losses.CategoricalFocalCrossentropy`, which for a vocabulary would
    take a tensor as large as the logits.

    Args:
        gamma: Exponent, zero or more. Defaults to `2.0`.
        from_logits: Whether `y_pred` are logits. Defaults to `False`:
            probabilities.
        reduction: As of `keras.losses.Loss`. `"mean_with_sample_weight"`
            averages over the weight, so over the tokens that count.
        name: Name of the loss.
        dtype: Dtype of the loss.

    Call arguments:
        y_true: Labels, `(...)` integers.
        y_pred: Logits or probabilities, `(..., K)`.
        sample_weight: `(...)`, optional.

    Raises:
        ValueError: If `gamma` is negative.

    Example:

    >>> loss = keras_bft.losses.SparseCategoricalFocalCrossentropy()
    >>> round(float(loss(np.array([1]), np.array([[0.5, 0.5]]))), 4)
    0.1733

    References:
        - [Lin et al., 2017, Focal Loss for Dense Object
          Detection](https://arxiv.org/abs/1708.02002)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        from_logits: bool = False,
        reduction: str = "sum_over_batch_size",
        name: str = "sparse_categorical_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not gamma >= 0:
            raise ValueError(
                f"`gamma` must be zero or more. Received: gamma={gamma}"
            )
        self.gamma = gamma
        self.from_logits = from_logits

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each label, of the shape of `y_true`."""
        crossentropy = ops.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=self.from_logits
        )
        # 1 - p, without loss of digits where p is close to 1, and with a
        # finite gradient at p = 1 for a gamma below 1.
        missed = ops.maximum(-ops.expm1(-crossentropy), 1e-12)
        return ops.power(missed, self.gamma) * crossentropy

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "gamma": self.gamma,
            "from_logits": self.from_logits,
        }
