"""Layer and RMS normalisation that tell how far they divided."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import check_choice
from keras_bft.ops import layer_norm_jacobian
from keras_bft.ops import rms_norm_jacobian
from keras_bft.typing import Tensor

NORMALIZATIONS = ("layer", "rms")


@keras.saving.register_keras_serializable(package="keras_bft")
class StateNormalization(FilterLayer):
    """Normalises a state and returns the spread that it divided by.

    The filter needs the spread to carry a precision from the units of the
    residual stream to those of the normalised state. Statistics are computed
    in float32.

    Args:
        kind: `"layer"` (subtract the mean, divide by the standard deviation,
            scale and shift) or `"rms"` (divide by the root mean square,
            scale).
        epsilon: Added to the variance or mean square. Defaults to `1e-6`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.

    Returns:
        The normalised state `(B, T, D)` in the compute dtype, and the spread
        `(B, T)` in float32.

    Raises:
        ValueError: If `kind` is unknown.

    Example:

    >>> layer = keras_bft.layers.StateNormalization("rms")
    >>> normalized, spread = layer(np.full((1, 2, 4), 3.0))
    >>> round(float(spread[0, 0]), 4)
    3.0
    """

    def __init__(
        self, kind: str = "layer", epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_choice("kind", kind, NORMALIZATIONS)
        self.kind = kind
        self.epsilon = epsilon

    def build(self, state_shape: tuple[int | None, ...]) -> None:
        width = (state_shape[-1],)
        self.gamma = self.add_weight(
            shape=width, initializer="ones", autocast=False, name="gamma"
        )
        self.beta = None
        if self.kind == "layer":
            self.beta = self.add_weight(
                shape=width, initializer="zeros", autocast=False, name="beta"
            )
        self.built = True

    def call(self, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.cast_statistic(state)
        if self.kind == "layer":
            # OpenVINO fuses this into one operation, and wants a list.
            x = x - ops.mean(x, axis=[-1], keepdims=True)
        mean_square = ops.mean(ops.square(x), axis=[-1], keepdims=True)
        spread = ops.sqrt(mean_square + self.epsilon)
        normalized = x * (1.0 / spread) * self.cast_statistic(self.gamma)
        if self.beta is not None:
            normalized = normalized + self.cast_statistic(self.beta)
        return self.cast_state(normalized), ops.squeeze(spread, axis=-1)

    def jacobian(self, state: Tensor) -> Tensor:
        """Diagonal Jacobian of the normalised state, `(B, T, D)`."""
        function = (
            layer_norm_jacobian if self.kind == "layer" else rms_norm_jacobian
        )
        return function(
            self.cast_statistic(state),
            self.cast_statistic(self.gamma),
            self.epsilon,
        )

    @property
    def mean_factor(self) -> float:
        """Mean over the channels of `spread / gamma` times the Jacobian.

        `1 - 2/D` for layer norm, `1 - 1/D` for RMS norm, as the squared
        normalised channels have a mean of one.
        """
        lost = 2.0 if self.kind == "layer" else 1.0
        return 1.0 - lost / self.gamma.shape[0]

    def compute_output_spec(
        self, state: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        return (
            keras.KerasTensor(state.shape, dtype=self.compute_dtype),
            keras.KerasTensor(state.shape[:-1], dtype=self.statistics_dtype),
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kind": self.kind,
            "epsilon": self.epsilon,
        }
