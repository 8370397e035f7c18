"""Causal attention within the segments of packed rows."""

from typing import Any

import keras
from keras import ops

from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class SegmentMask(keras.layers.Layer):
    """Which tokens each token may see, and its position among them.

    A token sees itself and the earlier tokens of its own segment, so examples
    packed into one row stay strangers. Positions count from the first token of
    the segment, wherever the padding is. It has no weights.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        segment_ids: Integers or bool `(B, T)`: 0 (`False`) is padding, and
            tokens with the same number belong together. A padding mask is the
            case of one segment.

    Returns:
        `(B, T, T)` bool, `True` where a token may see another, and positions
        `(B, T)`, int32, 0 at padding.

    Example:

    >>> layer = keras_bft.layers.SegmentMask()
    >>> visible, positions = layer(np.array([[0, 1, 1, 2]]))
    >>> keras.ops.convert_to_numpy(positions).tolist()
    [[0, 0, 1, 0]]
    >>> keras.ops.convert_to_numpy(visible)[0, 3].tolist()
    [False, False, False, True]
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.built = True

    def call(self, segment_ids: Tensor) -> tuple[Tensor, Tensor]:
        segment_ids = ops.cast(segment_ids, "int32")
        index = ops.arange(ops.shape(segment_ids)[1])
        visible = ops.logical_and(
            segment_ids[:, :, None] == segment_ids[:, None, :],
            index[:, None] >= index[None, :],
        )
        visible = ops.logical_and(visible, (segment_ids > 0)[:, None, :])
        earlier = ops.sum(ops.cast(visible, "int32"), axis=-1) - 1
        return visible, ops.maximum(earlier, 0)

    def compute_output_spec(
        self, segment_ids: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        batch, length = segment_ids.shape
        return (
            keras.KerasTensor((batch, length, length), dtype="bool"),
            keras.KerasTensor((batch, length), dtype="int32"),
        )
