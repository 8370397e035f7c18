"""Checks that the observations share."""

from keras_bft.ops._casting import cast
from keras_bft.typing import Tensor


def check_heads(query: Tensor, key: Tensor) -> None:
    """Raises a `ValueError` unless key heads divide query heads."""
    if query.shape[2] % key.shape[2]:
        raise ValueError(
            "The number of query heads must be a multiple of the number of "
            f"key heads. Received: query.shape={query.shape}, "
            f"key.shape={key.shape}"
        )


def pair_mask(mask: Tensor) -> Tensor:
    """A mask of queries and keys as bool.

    Raises:
        ValueError: If it is not of rank 3.
    """
    mask = cast(mask, "bool")
    if len(mask.shape) != 3:
        raise ValueError(
            "`mask` must have the shape `(B, T, S)` or `(B, 1, S)`. "
            f"Received: mask.shape={mask.shape}"
        )
    return mask
