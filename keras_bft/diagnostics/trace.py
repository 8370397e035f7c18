"""Gains, precisions and weights of every layer for one batch."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers._trace import listening


def trace(model: Any, inputs: Any, **kwargs: Any) -> dict[str, np.ndarray]:
    """Calls a model on a batch and returns what its filter layers computed.

    The call is eager, and the model and its outputs stay as they are. Any
    model with layers of `keras_bft.layers` works.

    Args:
        model: A built Keras model or layer.
        inputs: Its inputs, one batch.
        **kwargs: Other arguments of the call.

    Returns:
        Arrays by name, in the order of computation: the path of the layer and
        the value, such as `"block_0/residual/gain"` (`(B, T, D)` or
        `(B, T, 1)`, from 0 to 1), `"block_0/attention/effective_sample_size"`
        (`(B, T, H, 1)`), `"block_0/attention/kriging_weights"`
        (`(B, H, T, S)`). Log-precisions are natural logarithms. Where a layer
        is called again, its names continue with `:1`, `:2` and so on.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> traced = keras_bft.diagnostics.trace(model, np.array([[3, 5, 7, 2]]))
    >>> traced["block_1/residual/gain"].shape
    (1, 4, 64)
    """
    with listening() as records:
        model(inputs, **kwargs)
    paths: dict[int, str] = {}
    for path, layer in _walk(model, ""):
        paths.setdefault(id(layer), path)
    calls: dict[int, int] = {}
    traced = {}
    for layer, values in records:
        call = calls[id(layer)] = calls.get(id(layer), -1) + 1
        suffix = f":{call}" if call else ""
        for name, value in values.items():
            traced[f"{paths[id(layer)]}/{name}{suffix}"] = _to_numpy(value)
    return traced


def _walk(layer: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for child in getattr(layer, "_layers", []):
        path = f"{prefix}{child.name}"
        yield path, child
        yield from _walk(child, f"{path}/")
    if not prefix:
        yield layer.name, layer


def _to_numpy(value: Any) -> np.ndarray:
    value = ops.stop_gradient(ops.convert_to_tensor(value))
    if keras.backend.standardize_dtype(value.dtype) in ("float16", "bfloat16"):
        value = ops.cast(value, "float32")
    return ops.convert_to_numpy(value)
