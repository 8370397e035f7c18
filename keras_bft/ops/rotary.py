"""Rotary position embedding: the rotation of queries and keys."""

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.ops.precision import float32
from keras_bft.typing import Tensor


def rotation(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Cosine and sine of every position's angles.

    Args:
        positions: Integer tensor `(B, T)`.
        frequencies: `(C / 2,)`.

    Returns:
        `(B, T, 2, C / 2)`, float32.
    """
    angles = ops.cast(positions, "float32")[..., None] * frequencies
    return ops.stack([ops.cos(angles), ops.sin(angles)], axis=-2)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turns channel `i` with channel `i + C / 2` of queries or keys.

    Args:
        x: `(B, T, H, C)`.
        rotation: `(B, T, 2, C / 2)`, what `rotation()` returns.

    Returns:
        `(B, T, H, C)` in the dtype of `x`; computed in float32.
    """
    cos, sin = rotation[:, :, None, 0], rotation[:, :, None, 1]
    half = x.shape[-1] // 2
    wide = float32(x)
    first, second = wide[..., :half], wide[..., half:]
    turned = ops.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )
    return cast(turned, x.dtype)
