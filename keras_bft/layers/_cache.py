"""Caches of what attention has seen: keys, values and their precisions."""

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.typing import Tensor


def update_cache(
    cache: dict[str, Tensor], index: int | Tensor, new: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Writes the keys of a call into a cache.

    Args:
        cache: Tensors `(B, S, ...)` by name.
        index: Position in the cache of the first new key.
        new: Tensors `(B, T, ...)` by the same names. They are kept in the
            dtypes of the cache.

    Returns:
        The cache with positions `index` to `index + T` replaced.
    """
    return {
        name: ops.slice_update(
            old,
            (0, index) + (0,) * (len(old.shape) - 2),
            cast(new[name], old.dtype),
        )
        for name, old in cache.items()
    }
