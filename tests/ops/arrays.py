"""Small helpers of the tests of the mathematics."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tests.compiled import compiled

# Batch, sequence and channels, of twenty shapes.
SHAPES = [
    (batch, length, channels)
    for batch, length in ((1, 1), (1, 4), (2, 3), (3, 1), (2, 7))
    for channels in (1, 2, 5, 16)
]


def log_precisions(
    rng: np.random.Generator, shape: tuple[int, ...], spread: float = 1.5
) -> np.ndarray:
    """Log-precisions whose standard deviation is `spread`, in float32."""
    return rng.normal(scale=spread, size=shape).astype("float32")


def normals(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def numpy(x: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(x)


def run(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Calls the function, compiled on JAX (one compilation, not one an op)."""
    return compiled(function)(*arrays)


def run_named(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Calls the function with named arrays, and constants besides.

    On JAX it is compiled once for the same constants and shapes.
    """
    arrays = {k: x for k, x in inputs.items() if hasattr(x, "shape")}
    constants = tuple((k, x) for k, x in inputs.items() if k not in arrays)
    return _with_constants(function, constants)(**arrays)


@functools.cache
def _with_constants(
    function: Callable[..., Any], constants: tuple[tuple[str, Any], ...]
) -> Callable[..., Any]:
    return compiled(functools.partial(function, **dict(constants)))


def weighted_sum(x: Any, probe: np.ndarray) -> Any:
    """Makes a scalar of a tensor, each entry with its own weight."""
    return keras.ops.sum(x * keras.ops.convert_to_tensor(probe, dtype=x.dtype))


def assert_log_close(actual: Any, expected: Any, rtol: float = 1e-4) -> None:
    """Asserts that `exp(actual)` equals `expected` to a relative error."""
    actual = numpy(actual)
    assert actual.shape == np.shape(expected)
    assert actual.dtype == "float32"
    np.testing.assert_allclose(
        actual.astype("float64"), np.log(expected), rtol=0, atol=rtol
    )
