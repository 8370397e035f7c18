"""Token ids and masks as NumPy arrays that a backbone can take."""

from typing import Any

import numpy as np
from keras import ops

from keras_bft.ops.precision import float32


def read_tokens(
    token_ids: Any, padding_mask: Any, vocabulary_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Checks ids and mask where they enter: not every backend would.

    Args:
        token_ids: `(B, T)` integers.
        padding_mask: `(B, T)`, the number of the example where several are
            packed in a row, or `None` for no padding.
        vocabulary_size: Number of ids.

    Returns:
        Two int32 arrays `(B, T)`.

    Raises:
        ValueError: If the shapes do not fit or an id is unknown.
    """
    ids = np.asarray(ops.convert_to_numpy(token_ids))
    mask = np.ones(ids.shape, "int32")
    if padding_mask is not None:
        mask = np.asarray(ops.convert_to_numpy(padding_mask)).astype("int32")
    if ids.ndim != 2 or ids.size == 0 or mask.shape != ids.shape:
        raise ValueError(
            "`token_ids` and `padding_mask` must have the shape "
            "`(batch, length)`, with at least one row and one token. "
            f"Received: token_ids of shape {ids.shape}, padding_mask of shape "
            f"{mask.shape}"
        )
    if ids.dtype.kind not in "iu":
        raise ValueError(
            f"`token_ids` must be integers. Received: dtype={ids.dtype}"
        )
    largest = vocabulary_size - 1
    if ids.min() < 0 or ids.max() > largest:
        raise ValueError(
            f"`token_ids` must be from 0 to {largest}. Received: ids from "
            f"{ids.min()} to {ids.max()}"
        )
    return ids.astype("int32"), mask


def to_numpy(x: Any) -> np.ndarray:
    """A float tensor without its graph; of half precision as float32."""
    return np.asarray(ops.convert_to_numpy(float32(ops.stop_gradient(x))))
