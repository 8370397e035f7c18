"""Which positions of a batch are tokens."""

from typing import Any

import numpy as np


def real_tokens(
    inputs: Any, padding_mask: Any, shape: tuple[int, ...]
) -> np.ndarray:
    """Where a batch has tokens, `(B, T)` bool.

    Raises:
        ValueError: If the mask has another shape, or there is no token.
    """
    if padding_mask is None and isinstance(inputs, dict):
        padding_mask = inputs.get("padding_mask")
    if padding_mask is None:
        return np.ones(shape, bool)
    mask = np.asarray(padding_mask) != 0
    if mask.shape != shape:
        raise ValueError(
            f"`padding_mask` must have the shape {shape}. "
            f"Received: padding_mask of shape {mask.shape}"
        )
    if not mask.any():
        raise ValueError(
            "`padding_mask` must be true at some token. "
            "Received: a mask that is false everywhere"
        )
    return mask
