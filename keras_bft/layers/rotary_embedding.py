"""Rotary position embedding."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._rotary_frequencies import rotary_frequencies
from keras_bft.ops.rotary import rotation
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class RotaryEmbedding(keras.layers.Layer):
    """Rotation of queries and keys by their position (RoPE).

    Computed once for all layers, which take the result as their `rotation`:
    `layer(state, log_precision, rotation=RotaryEmbedding(64)(positions))`.
    It has no weights.

    Args:
        head_dim: Channels of a head `C`, even.
        theta: Base of the frequencies. Defaults to `10000.0`.
        scaling: `None` (default), `{"type": "linear", "factor": ...}`, or
            `{"type": "llama3", "factor": ..., "low_freq_factor": ...,
            "high_freq_factor": ..., "original_max_position_embeddings":
            ...}`. Linear scaling divides all frequencies by `factor`; that of
            Llama 3 divides those of wavelengths above
            `original_max_position_embeddings / low_freq_factor`, keeps those
            below `.../ high_freq_factor`, and interpolates between.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        positions: Integers `(B, T)`, from 0.

    Returns:
        `(B, T, 2, C / 2)`, float32: cosine and sine.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> rotation = keras_bft.layers.RotaryEmbedding(4)(np.array([[0, 1]]))
    >>> keras.ops.convert_to_numpy(rotation)[0, :, :, 0].astype(float).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """

    def __init__(
        self,
        head_dim: int,
        theta: float = 10000.0,
        scaling: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.head_dim = head_dim
        self.theta = theta
        self.scaling = None if scaling is None else dict(scaling)
        self.frequencies = rotary_frequencies(head_dim, theta, scaling)
        self.built = True

    def call(self, positions: Tensor) -> Tensor:
        return rotation(positions, ops.convert_to_tensor(self.frequencies))

    def compute_output_spec(
        self, positions: keras.KerasTensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(
            (*positions.shape, 2, self.head_dim // 2), dtype="float32"
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "head_dim": self.head_dim,
            "theta": self.theta,
            "scaling": self.scaling,
        }
