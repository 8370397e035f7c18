"""Update: the residual connection as a Kalman step."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._trace import report
from keras_bft.ops import kalman_update
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class KalmanResidual(FilterLayer):
    """Adds an innovation to a state with an adaptive gain.

    `state + K * innovation` with `K = sigmoid(l_obs - l - log s)`; see
    `keras_bft.ops.kalman_update`. It has no weights.

    Args:
        strength: Filter strength `s >= 0`. One is the paper's filter, zero
            the standard residual connection. Defaults to `1.0`.
        kalman_gain: `False` is an ablation: the innovation is added whole
            (`K = 1`), and the precision is updated all the same. Defaults to
            `True`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        log_precision: `(B, T, D)` or `(B, T, 1)`.
        innovation: `(B, T, D)`, what `BFTAttention` returns.
        observation_log_precision: `(B, T, D)` or `(B, T, 1)`, what
            `BFTAttention` returns.
        strength: Optional scalar tensor in place of the layer's own strength.

    Returns:
        The posterior state `(B, T, D)` and its log-precision (float32). The
        state's Keras mask passes to both.

    Raises:
        ValueError: If `strength` is negative.

    Example:

    >>> state, log_precision = keras_bft.layers.KalmanResidual()(
    ...     np.zeros((1, 1, 2)), np.zeros((1, 1, 1)),
    ...     np.ones((1, 1, 2)), np.zeros((1, 1, 1)))
    >>> keras.ops.convert_to_numpy(state).tolist()
    [[[0.5, 0.5]]]
    """

    def __init__(
        self, strength: float = 1.0, kalman_gain: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if strength < 0:
            raise ValueError(
                "`strength` must be zero or more. "
                f"Received: strength={strength}"
            )
        self.strength = strength
        self.kalman_gain = kalman_gain
        self.built = True

    def call(
        self,
        state: Tensor,
        log_precision: Tensor,
        innovation: Tensor,
        observation_log_precision: Tensor,
        strength: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        state = self.cast_state(state)
        prior = self.cast_statistic(log_precision)
        innovation = self.cast_state(innovation)
        updated, posterior, gain = kalman_update(
            state,
            prior,
            innovation,
            self.cast_statistic(observation_log_precision),
            self.strength if strength is None else strength,
        )
        if not self.kalman_gain:
            updated, gain = state + innovation, ops.ones_like(gain)
        report(
            self, gain=gain, log_precision=posterior, prior_log_precision=prior
        )
        return updated, posterior

    def compute_output_spec(
        self,
        state: keras.KerasTensor,
        log_precision: keras.KerasTensor,
        innovation: keras.KerasTensor,
        observation_log_precision: keras.KerasTensor,
        strength: keras.KerasTensor | None = None,
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        width = max(
            log_precision.shape[-1], observation_log_precision.shape[-1]
        )
        return (
            keras.KerasTensor(state.shape, dtype=self.compute_dtype),
            keras.KerasTensor(
                (*state.shape[:-1], width), dtype=self.statistics_dtype
            ),
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "strength": self.strength,
            "kalman_gain": self.kalman_gain,
        }
