"""Casts that cost nothing where there is nothing to cast."""

from typing import Any

import keras
from keras import ops

from keras_bft.typing import Tensor

_name = keras.backend.standardize_dtype


def cast(x: Tensor, dtype: Any) -> Tensor:
    """`keras.ops.cast`, which is not called on a tensor of that dtype.

    Where no graph is compiled, a call takes as long as a small product, and
    a decoder makes thousands of them a token.

    Args:
        x: Anything that Keras takes for a tensor.
        dtype: The dtype: its name, or that of a tensor.

    Returns:
        A tensor.
    """
    if ops.is_tensor(x) and _name(x.dtype) == _name(dtype):
        return x
    return ops.cast(x, dtype)


def float32(x: Tensor) -> Tensor:
    """Casts to float32, or leaves float64 as it is."""
    if not ops.is_tensor(x):
        x = ops.convert_to_tensor(x)
    return (
        x
        if _name(x.dtype) in ("float32", "float64")
        else ops.cast(x, "float32")
    )
