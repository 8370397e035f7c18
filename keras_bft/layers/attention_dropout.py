"""Dropout of attention weights: missing observations, or added noise."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_rate
from keras_bft.typing import Tensor

DROPOUT_MODES = ("renormalized", "inverted")


@keras.saving.register_keras_serializable(package="keras_bft")
class AttentionDropout(keras.layers.Layer):
    """Drops attention weights.

    Args:
        rate: Share of weights dropped, in [0, 1).
        mode: `"renormalized"`: the weights that survive are divided by their
            sum, so a dropped key is an observation that was not made; a query
            that loses every key keeps weights of zero. `"inverted"`: the
            usual dropout, survivors divided by `1 - rate`.
        seed: Seed of the random numbers.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        weights: `(B, H, T, S)`, rows that sum to one or to zero.
        training: Whether to drop.

    Returns:
        Weights of the same shape and dtype.

    Raises:
        ValueError: If `rate` or `mode` is not one of the above.

    Example:

    >>> layer = keras_bft.layers.AttentionDropout(0.5, "renormalized", seed=1)
    >>> weights = layer(np.full((1, 1, 1, 8), 0.125), training=True)
    >>> round(float(keras.ops.sum(weights)), 5)
    1.0
    """

    def __init__(
        self,
        rate: float,
        mode: str = "renormalized",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_rate("rate", rate)
        check_choice("mode", mode, DROPOUT_MODES)
        self.rate = rate
        self.mode = mode
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def kept(self, shape: tuple[Any, ...]) -> Tensor:
        """Draws which weights of a shape are kept in training, as bool."""
        noise = keras.random.dropout(
            ops.ones(shape), self.rate, seed=self.seed_generator
        )
        return noise > 0.0

    def call(self, weights: Tensor, training: bool = False) -> Tensor:
        if not training or self.rate == 0:
            return weights
        weights = keras.random.dropout(
            weights, self.rate, seed=self.seed_generator
        )
        if self.mode == "inverted":
            return weights
        total = ops.sum(weights, axis=-1, keepdims=True)
        survived = total > 0
        return ops.where(
            survived, weights / ops.where(survived, total, 1.0), 0.0
        )

    def compute_output_shape(self, weights_shape: tuple) -> tuple:
        return weights_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rate": self.rate,
            "mode": self.mode,
            "seed": self.seed,
        }
