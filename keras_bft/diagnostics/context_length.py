"""Gain, sample size and gate against the number of visible tokens."""

from typing import Any
from typing import NamedTuple

import numpy as np

from keras_bft.diagnostics._padding import real_tokens
from keras_bft.diagnostics.trace import trace

_VALUES = ("gain", "effective_sample_size", "gate")


class ContextCurve(NamedTuple):
    """Means over tokens by the number of tokens that they see.

    Attributes:
        visible: Smallest number of visible tokens of each bin, `(N,)`: 1, 2,
            4, 8 and so on.
        mean: Mean of the value, `(N,)`.
        stddev: Standard deviation over tokens, `(N,)`.
        number: Number of tokens, `(N,)`.
    """

    visible: np.ndarray
    mean: np.ndarray
    stddev: np.ndarray
    number: np.ndarray


def by_context_length(
    model: Any, inputs: Any, padding_mask: Any = None, **kwargs: Any
) -> dict[str, ContextCurve]:
    """Gain, effective sample size and gate by the length of the context.

    Of every layer and every token the mean over channels and heads is taken;
    tokens are put together that see from `2^k` to `2^(k+1) - 1` others and
    themselves.

    Args:
        model: A causal model with layers of `keras_bft.layers`.
        inputs: One batch of its inputs.
        padding_mask: `(B, T)`, true at real tokens. Defaults to the entry of
            that name in `inputs`, or to all.
        **kwargs: Other arguments of the call.

    Returns:
        A curve for each of the values that the model has, by name as in
        `trace`: `"block_0/residual/gain"`.

    Raises:
        ValueError: If the model has none of the values.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> curves = keras_bft.diagnostics.by_context_length(
    ...     model, np.array([[3, 5, 7, 2, 9]]))
    >>> curves["block_0/residual/gain"].visible.tolist()
    [1, 2, 4]
    """
    curves = {}
    for name, values in trace(model, inputs, _VALUES, **kwargs).items():
        rows, length = values.shape[:2]
        means = values.reshape(rows, length, -1).mean(axis=-1)
        mask = real_tokens(inputs, padding_mask, (rows, length))
        curves[name] = _curve(means[mask], np.cumsum(mask, axis=1)[mask])
    if not curves:
        raise ValueError(
            f"The model must have one of {_VALUES}. Received: model={model}"
        )
    return curves


def _curve(values: np.ndarray, visible: np.ndarray) -> ContextCurve:
    # Exact for every number below 2^53.
    bins = np.frexp(visible.astype("float64"))[1] - 1
    number = np.bincount(bins)
    used = np.flatnonzero(number)
    number = number[used]
    values = values.astype("float64")
    mean = np.bincount(bins, values)[used] / number
    squares = np.bincount(bins, values**2)[used] / number
    stddev = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return ContextCurve(2**used, mean, stddev, number)
