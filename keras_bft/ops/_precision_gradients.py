"""Sums of precisions and of variances, with gradients that keep little.

What a compiler keeps of a logarithm of a sum of exponentials for its gradient
are several arrays of the size of the state; one is enough: the share of a part.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.ops._casting import float32
from keras_bft.ops._own_gradient import with_own_gradient
from keras_bft.typing import Tensor

# exp(-80) is still a normal float32.
_LARGEST_EXPONENT = 80.0

# Below it a gain is none.
_SMALLEST_GAIN = 1.0e-30


def _with_own_gradient(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """`with_own_gradient`, and on TensorFlow the first output alone.

    TensorFlow keeps every graph in which a custom gradient was traced for as
    long as the process lives, and a model traces many. There the functions
    below are differentiated as they stand.
    """
    if keras.backend.backend() != "tensorflow":
        return with_own_gradient(function)
    return lambda *args: function(*args)[0]


def kalman_gain(
    prior: Tensor, observed: Tensor, strength: float | Tensor
) -> Tensor:
    """`exp(observed) / (strength exp(prior) + exp(observed))`.

    Args:
        prior: Log-precision of the state, `(B, T, D)` or `(B, T, 1)`.
        observed: That of the observation, `(B, T, D)` or `(B, T, 1)`.
        strength: A number above zero, or a scalar tensor, zero or more.

    Returns:
        `(B, T, D)` or `(B, T, 1)`, from 0 to 1. Exactly zero where it is
        below 1e-30.
    """

    @_with_own_gradient
    def gain_of(
        prior: Tensor, observed: Tensor, strength: Tensor
    ) -> tuple[Tensor, Any]:
        ratio = _bounded_exp(prior - observed)
        gain = 1.0 / (1.0 + strength * ratio)
        gain = ops.where(gain < _SMALLEST_GAIN, 0.0, gain)

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream
            scaled = upstream * gain
            slope = scaled - scaled * gain
            return (
                -_sum_to(slope, prior),
                _sum_to(slope, observed),
                -ops.sum(scaled * (gain * ratio)),
            )

        return gain, gradient

    return gain_of(*_values(prior, observed, strength))


def updated_log_precision(
    prior: Tensor, observed: Tensor, strength: float | Tensor
) -> Tensor:
    """`log(strength exp(prior) + exp(observed))`, for a strength of zero too.

    Args:
        prior: Log-precision of the state, `(B, T, D)` or `(B, T, 1)`.
        observed: That of the observation, `(B, T, D)` or `(B, T, 1)`.
        strength: A number above zero, or a scalar tensor, zero or more.

    Returns:
        `(B, T, D)` or `(B, T, 1)`.
    """

    @_with_own_gradient
    def update(
        prior: Tensor, observed: Tensor, strength: Tensor
    ) -> tuple[Tensor, Any]:
        difference = prior - observed
        ratio = _bounded_exp(difference)
        total = 1.0 + strength * ratio
        posterior = observed + ops.log(total)
        # Beyond the bound the sum is of the prior alone, and exact in it.
        rest = ops.exp(-ops.clip(difference, 0.0, _LARGEST_EXPONENT))
        posterior = ops.where(
            difference > _LARGEST_EXPONENT,
            prior + ops.log(strength + rest),
            posterior,
        )
        gain = 1.0 / total

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream
            observed_slope = upstream * gain
            return (
                _sum_to(upstream - observed_slope, prior),
                _sum_to(observed_slope, observed),
                ops.sum(observed_slope * ratio),
            )

        return posterior, gradient

    return update(*_values(prior, observed, strength))


def noisy_log_variance(
    log_variance: Tensor, factor: Tensor, log_noise: Tensor
) -> Tensor:
    """`log(factor exp(log_variance) + exp(log_noise))`.

    Args:
        log_variance: `(B, T, D)` or `(B, T, 1)`.
        factor: Above zero, a number, `(B, T, D)` or `(B, T, 1)`.
        log_noise: `(D,)` or `(1,)`, or a number.

    Returns:
        `(B, T, D)` or `(B, T, 1)`.
    """

    @_with_own_gradient
    def add_noise(
        log_variance: Tensor, factor: Tensor, log_noise: Tensor
    ) -> tuple[Tensor, Any]:
        difference = log_variance - log_noise
        # Both variances over the larger one.
        state_leads = difference > 0.0
        ratio = ops.exp(ops.where(state_leads, -difference, difference))
        part = factor * ops.where(state_leads, 1.0, ratio)
        total = part + ops.where(state_leads, ratio, 1.0)
        largest = ops.where(state_leads, log_variance, log_noise)
        share = part / total

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream
            slope = upstream * share
            return (
                _sum_to(slope, log_variance),
                _sum_to(slope / factor, factor),
                _sum_to(upstream - slope, log_noise),
            )

        return largest + ops.log(total), gradient

    return add_noise(*_values(log_variance, factor, log_noise))


def _bounded_exp(x: Tensor) -> Tensor:
    """`exp(x)`, of at most `exp(80)`."""
    return ops.exp(ops.minimum(x, _LARGEST_EXPONENT))


def _values(*xs: float | Tensor) -> list[Tensor]:
    """Tensors of one dtype, float32 or float64, of numbers and tensors.

    Variables are copied: TensorFlow would want their gradients, too, from a
    function with a gradient of its own. They are small.
    """
    tensors = [float32(x) for x in xs]
    dtype = keras.backend.result_type(*(x.dtype for x in tensors))
    return [
        ops.copy(cast(x, dtype)) if len(x.shape) < 2 else cast(x, dtype)
        for x in tensors
    ]


def _sum_to(slope: Tensor, x: Tensor) -> Tensor:
    """Sums a gradient over the axes in which `x` was repeated."""
    rank = len(x.shape)
    if rank == 0:
        return ops.sum(slope)
    if rank == 1:
        slope = ops.sum(slope, axis=(0, 1))
    if x.shape[-1] == 1 and slope.shape[-1] != 1:
        slope = ops.sum(slope, axis=-1, keepdims=True)
    return slope
