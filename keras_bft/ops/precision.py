"""Algebra of log-precisions: mean, Kalman update, prediction.

A precision is an inverse variance. Every function here takes and returns its
natural logarithm in float32, whatever the dtype of the state, so float16 and
bfloat16 states never hold an exponentiated precision.
"""

import math

from keras import ops

from keras_bft.ops._casting import float32
from keras_bft.ops._precision_gradients import kalman_gain
from keras_bft.ops._precision_gradients import noisy_log_variance
from keras_bft.ops._precision_gradients import updated_log_precision
from keras_bft.typing import Tensor

# Log-precision of an observation that was not made. Its gain is exactly zero
# in float32, and unlike minus infinity it keeps every gradient finite.
NO_OBSERVATION = -1.0e4

# Below it a log-precision is that of a precision of zero.
_LOWEST = -1.0e30


def log_add(x: Tensor, y: Tensor) -> Tensor:
    """`log(exp(x) + exp(y))`, differentiated right where `x == y` too.

    `keras.ops.logaddexp` is not on TensorFlow: there the first argument gets
    the whole gradient. Equal precisions are common (a uniform start).
    """
    largest = ops.stop_gradient(ops.maximum(x, y))
    # `ops.subtract` lets float32 and float64 meet on TensorFlow too.
    scaled = (ops.exp(ops.subtract(value, largest)) for value in (x, y))
    return largest + ops.log(sum(scaled))


def log_mean_precision(log_precision: Tensor) -> Tensor:
    """Log of the mean precision over the channels.

    The paper's scalar precision of a key, `log(mean_d(exp(l_d)))`.

    Args:
        log_precision: Log-precision of shape `(..., D)`, with `D = 1` for
            token tracking.

    Returns:
        Log-precision of shape `(...)`, float32. Minus infinity, without a
        gradient, where that of all channels is.

    Example:

    >>> log_mean = log_mean_precision(np.log([[[1.0, 3.0]]]))
    >>> round(float(keras.ops.exp(log_mean[0, 0])), 4)
    2.0
    """
    log_precision = float32(log_precision)
    channels = log_precision.shape[-1]
    if channels == 1:
        return ops.squeeze(log_precision, axis=-1)
    # Of minus infinities alone the gradient would be that of no number.
    bounded = ops.maximum(log_precision, _LOWEST)
    mean = ops.logsumexp(bounded, axis=-1) - math.log(channels)
    return ops.where(mean > 0.5 * _LOWEST, mean, -math.inf)


def unit_snr_log_precision(state: Tensor, epsilon: float = 1e-12) -> Tensor:
    """Log-precision at a signal-to-noise ratio of one.

    Minus the log of the state's variance over its channels: what a filter
    layer starts from when it is given a state alone. Derived for this library.

    Args:
        state: `(B, T, D)`.
        epsilon: Added to the variance, so that a state of zeros stays finite.

    Returns:
        `(B, T, 1)`, float32.
    """
    variance = ops.var(float32(state), axis=-1, keepdims=True)
    return -ops.log(variance + epsilon)


def kalman_update(
    state: Tensor,
    log_precision: Tensor,
    innovation: Tensor,
    observation_log_precision: Tensor,
    strength: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Update: the residual connection as a Kalman step.

    ```
    gain   = sigmoid(l_obs - l - log s) = lambda_obs / (s lambda + lambda_obs)
    state' = state + gain * innovation
    l'     = logaddexp(l + log s, l_obs)
    ```

    The gain and the posterior are the paper's. The strength `s` is derived
    for this library: a power prior, in which the state's own information
    counts `s` times. `s = 1` is the paper's filter; `s = 0` is the standard
    residual connection, with a gain of one.

    Args:
        state: Prior state of shape `(B, T, D)`.
        log_precision: Log-precision of the state, `(B, T, D)` or `(B, T, 1)`.
        innovation: What the observation adds to the state, `(B, T, D)`.
        observation_log_precision: Log-precision of the innovation,
            `(B, T, D)` or `(B, T, 1)`.
        strength: Filter strength `s >= 0`, a number or a scalar tensor. The
            gradient with respect to a tensor is exact at zero too.

    Returns:
        The posterior state in the dtype of `state`, its log-precision
        (float32) and the gain (float32). Where the observation is more than
        `exp(80)` times less precise than the state, a strength tensor of zero
        gives a posterior of `exp(-80)` times the state's precision.

    Raises:
        ValueError: If `strength` is a negative number.

    Example:

    >>> state, log_precision, gain = kalman_update(
    ...     np.zeros((1, 1, 2)), np.log([[[1.0, 3.0]]]),
    ...     np.ones((1, 1, 2)), np.log([[[1.0, 1.0]]]))
    >>> keras.ops.convert_to_numpy(gain).round(4).tolist()
    [[[0.5, 0.25]]]
    >>> np.exp(keras.ops.convert_to_numpy(log_precision)).round(4).tolist()
    [[[2.0, 4.0]]]
    """
    prior = float32(log_precision)
    observed = float32(observation_log_precision)
    is_number = isinstance(strength, (int, float))
    if is_number and strength < 0:
        raise ValueError(
            f"`strength` must be zero or more. Received: strength={strength}"
        )
    if is_number and strength == 0:
        gain = ops.ones_like(ops.subtract(prior, observed))
        posterior = ops.broadcast_to(observed, ops.shape(gain))
    else:
        gain = kalman_gain(prior, observed, strength)
        posterior = updated_log_precision(prior, observed, strength)
    state = ops.convert_to_tensor(state)
    step = ops.cast(gain, state.dtype) * ops.cast(innovation, state.dtype)
    return state + step, posterior, gain


def predict_log_precision(
    log_precision: Tensor,
    jacobian: Tensor | None,
    log_process_noise: Tensor | None,
) -> Tensor:
    """Predict: precision through `h + f(h)` plus process noise.

    ```
    l'' = -logaddexp(log((1 + J)^2 + 1e-6) - l, q)
    ```

    The diagonal delta method with additive process noise is the paper's; the
    floor of 1e-6 on the squared transition keeps a channel that the network
    cancels (J = -1) from becoming infinitely precise.

    Args:
        log_precision: Log-precision before the step, `(B, T, D)` or, with
            token tracking, `(B, T, 1)`.
        jacobian: Diagonal `J` of `f`, `(B, T, D)` or `(B, T, 1)`, or `None`
            for zero. With token tracking the variance is the mean over the
            channels of a diagonal of `D` entries.
        log_process_noise: `q = log Q`, the log of the variance that a step
            adds, broadcastable to `log_precision`. `None` adds none.

    Returns:
        Log-precision of the shape of `log_precision`, float32.

    Example:

    A variance of 1 grows fourfold through `h + f(h)` with `J = 1`, and the
    process noise adds 1:

    >>> log_precision = predict_log_precision(
    ...     np.zeros((1, 1, 1)), np.ones((1, 1, 1)), 0.0)
    >>> round(float(keras.ops.exp(-log_precision[0, 0, 0])), 4)
    5.0
    """
    log_variance = -float32(log_precision)
    factor: Tensor = 1.0
    if jacobian is not None:
        factor = ops.square(1.0 + float32(jacobian)) + 1e-6
        if log_variance.shape[-1] == 1 and factor.shape[-1] != 1:
            factor = ops.mean(factor, axis=-1, keepdims=True)
    if log_process_noise is None:
        if jacobian is not None:
            log_variance = ops.add(log_variance, ops.log(factor))
        return -log_variance
    return -noisy_log_variance(log_variance, factor, log_process_noise)


def normalized_log_precision(
    log_precision: Tensor, spread: Tensor, gamma: Tensor
) -> Tensor:
    """Log-precision of a state that a norm has scaled (post-norm layers).

    The delta method through `gamma * h / spread`, with the spread held fixed:
    `l + 2 log spread - log gamma^2`. Derived for this library.

    Args:
        log_precision: Log-precision before the norm, `(B, T, D)` or
            `(B, T, 1)`.
        spread: Standard deviation or root mean square by which the norm
            divides, `(B, T)`.
        gamma: Scale of the norm, `(D,)`. Token tracking uses its mean square.

    Returns:
        Log-precision of the shape of `log_precision`, float32.
    """
    log_precision = float32(log_precision)
    squared = ops.square(float32(gamma))
    if log_precision.shape[-1] == 1:
        squared = ops.mean(squared, keepdims=True)
    log_spread = ops.log(float32(spread))[..., None]
    return log_precision + 2.0 * log_spread - ops.log(squared + 1e-12)
