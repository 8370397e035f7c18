"""Precision of the keys in the units of each head's values."""

from keras import ops

from keras_bft.ops.precision import float32
from keras_bft.ops.precision import log_mean_precision
from keras_bft.typing import Tensor

_TINY = 1.0e-37
# Keeps the shares of a head whose kernel is zero, and their gradients, finite.
_SMALLEST_SQUARE = 1.0e-16


def value_log_precision(
    log_precision: Tensor,
    spread: Tensor,
    gamma: Tensor | None,
    kernel: Tensor,
    derivative: Tensor | None = None,
) -> Tensor:
    """Log-precision of each key's values, in the values' own units.

    A precision is in the units of the residual stream, a value is not. The
    delta method carries it through the norm (`h / spread`, times `gamma`) and
    the value kernel, and through the activation of the values, if they have
    one, with the derivative `d`:

    ```
    log pi_jh = lbar_j + 2 log s_j - log g_jh
    g_jh      = mean_c d_jhc^2 sum_i (gamma_i W[i, h, c])^2
    ```

    Derived for this library. Scaling the stream by c and its precisions by
    c^-2 leaves the result as it was.

    Args:
        log_precision: Log-precision of the keys' states, `(B, S, D)` or
            `(B, S, 1)`.
        spread: Standard deviation (layer norm) or root mean square (RMS norm)
            by which the norm divides each key's state, `(B, S)`.
        gamma: Scale of the norm, `(D,)`, or `None` for ones.
        kernel: Value kernel, `(D, Hk, C)`.
        derivative: Derivative of the values' activation at each key,
            `(B, S, Hk, C)`, or `None` for values without one (`d = 1`).

    Returns:
        Log-precision of shape `(B, S, Hk)`, float32.
    """
    return carried_log_precision(
        log_mean_precision(log_precision),
        spread,
        squared_value_gain(kernel, gamma, derivative),
    )


def squared_value_gain(
    kernel: Tensor,
    gamma: Tensor | None = None,
    derivative: Tensor | None = None,
) -> Tensor:
    """`g` of `value_log_precision`: how much variance a value kernel passes on.

    Args:
        kernel: Value kernel, `(D, Hk, C)`.
        gamma: Scale of the norm, `(D,)`, or `None` for ones.
        derivative: `(B, S, Hk, C)`, or `None`.

    Returns:
        `(Hk,)`, or `(B, S, Hk)` with a derivative; float32.
    """
    kernel = float32(kernel)
    if gamma is not None:
        kernel = float32(gamma)[:, None, None] * kernel
    squared_gain = ops.sum(ops.square(kernel), axis=0)
    if derivative is not None:
        squared_gain = ops.square(float32(derivative)) * squared_gain
    return ops.mean(squared_gain, axis=-1)


def carried_log_precision(
    mean_log_precision: Tensor, spread: Tensor, squared_gain: Tensor
) -> Tensor:
    """`value_log_precision` with the value kernel's gain at hand.

    Args:
        mean_log_precision: Log of the keys' mean precision, `(B, S)`.
        spread: `(B, S)`.
        squared_gain: What `squared_value_gain` returns.

    Returns:
        Log-precision of shape `(B, S, Hk)`, float32.
    """
    log_precision = mean_log_precision + 2.0 * ops.log(float32(spread))
    return log_precision[..., None] - ops.log(squared_gain + _TINY)


def head_log_precision(log_precision: Tensor, kernel: Tensor) -> Tensor:
    """Log-precision of a key as each head reads it.

    `lbar^h_j = -log sum_i omega_hi exp(-l_ji)`: the mean variance of the
    channels, weighted by how much the head's value kernel uses each of them.

    Args:
        log_precision: Log-precision of the keys' states, `(B, S, D)` or
            `(B, S, 1)`.
        kernel: Value kernel, `(D, Hk, C)`.

    Returns:
        Log-precision of shape `(B, S, Hk)`, float32.
    """
    log_variance = -float32(log_precision)
    num_heads = kernel.shape[1]
    if log_variance.shape[-1] == 1:
        return -ops.repeat(log_variance, num_heads, axis=-1)
    share = ops.sum(ops.square(float32(kernel)), axis=-1) + _SMALLEST_SQUARE
    share = share / ops.sum(share, axis=0, keepdims=True)
    largest = ops.stop_gradient(ops.max(log_variance, axis=-1, keepdims=True))
    variance = ops.matmul(ops.exp(log_variance - largest), share)
    return -(ops.log(variance + _TINY) + largest)
