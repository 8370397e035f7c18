"""Precision of the kriging estimate: REML posterior and projection."""

import math

from keras import ops

from keras_bft.ops.precision import NO_OBSERVATION
from keras_bft.ops.precision import float32
from keras_bft.ops.precision import log_add
from keras_bft.typing import Tensor

_TINY = 1.0e-37

# exp(80) is still a float32.
_LARGEST_EXPONENT = 80.0

# Stands for the logarithm of zero: finite, so that gradients are too.
_LOG_ZERO = -1.0e30


def observation_log_precision(
    residual_variance: Tensor,
    effective_sample_size: Tensor,
    log_prior_precision: Tensor,
    prior_dof: float = 1.0,
) -> Tensor:
    """Posterior mean precision of the kriging estimate, in the log domain.

    ```
    lambda_obs = n (nu0 + n - 1) / (nu0 / p + n r2)
    ```

    Derived for this library. The values are `n` equal-variance observations
    of one mean. REML gives the variance `n r2 / (n - 1)` with `n - 1` degrees
    of freedom; the prior on the variance is scaled-inverse-chi-squared with
    `nu0` degrees of freedom and scale `1 / p`. The result is the posterior
    mean precision of a mean of `n` values. With one visible key (`n = 1`,
    `r2 = 0`) it is the precision of that key's value.

    Args:
        residual_variance: `r2 >= 0`, `(B, T, H, C)` or `(B, T, H, 1)`.
        effective_sample_size: `n`, `(B, T, H, 1)`; zero means that the query
            saw nothing.
        log_prior_precision: `log p`, `(B, T, H, 1)`.
        prior_dof: Prior degrees of freedom `nu0 > 0`.

    Returns:
        Log-precision of the shape of `residual_variance`, float32. A query
        that saw nothing gets `NO_OBSERVATION`, which the Kalman update turns
        into a gain of zero.

    Raises:
        ValueError: If `prior_dof` is not positive.

    Example:

    One key of precision 2, then four whose values spread by a variance of 1:

    >>> log_prior = np.full((1, 2, 1, 1), np.log(2.0))
    >>> log_precision = observation_log_precision(
    ...     np.array([0.0, 1.0]).reshape(1, 2, 1, 1),
    ...     np.array([1.0, 4.0]).reshape(1, 2, 1, 1), log_prior)
    >>> [round(float(keras.ops.exp(l)), 3) for l in log_precision[0, :, 0, 0]]
    [2.0, 3.556]
    """
    _check_prior_dof(prior_dof)
    residual_variance = float32(residual_variance)
    sample_size = float32(effective_sample_size)
    seen = sample_size > 0.0
    n = ops.maximum(sample_size, 1.0)
    log_n = ops.log(n)
    log_prior_sum = math.log(prior_dof) - ops.where(
        seen, float32(log_prior_precision), 0.0
    )
    log_residual_sum = ops.where(
        residual_variance > 0.0,
        log_n + ops.log(ops.maximum(residual_variance, _TINY)),
        _LOG_ZERO,
    )
    log_precision = (
        log_n
        + ops.log(prior_dof + n - 1.0)
        - log_add(log_prior_sum, log_residual_sum)
    )
    return ops.where(seen, log_precision, NO_OBSERVATION)


def project_log_precision(
    log_precision: Tensor, kernel: Tensor, pool: bool = False
) -> Tensor:
    """Precision of a linear projection of independent channels.

    The delta method, `lambda_d = 1 / sum_{h,c} W[h,c,d]^2 / lambda_{h,c}`.

    Args:
        log_precision: Log-precision of the heads' channels, `(B, T, H, C)`,
            or of whole heads, `(B, T, H, 1)`.
        kernel: Output projection, `(H, C, D)`.
        pool: Whether to return the precision of the mean variance over the
            `D` channels (token tracking).

    Returns:
        Log-precision of shape `(B, T, D)`, or `(B, T, 1)` if `pool`; float32.
    """
    pooled = log_precision.shape[-1] == 1
    return projected_log_precision(
        log_precision, squared_projection(kernel, pooled, pool)
    )


def squared_projection(
    kernel: Tensor, pooled: bool = False, pool: bool = False
) -> Tensor:
    """Squared output projection: how much variance each channel passes on.

    Args:
        kernel: Output projection, `(H, C, D)`.
        pooled: Whether the channels of a head share one variance.
        pool: Whether the mean over the `D` channels is wanted.

    Returns:
        `(H * C, D)`, `(H, D)` if `pooled`, and `D = 1` if `pool`; float32.
    """
    squared = ops.square(float32(kernel))
    if pool:
        squared = ops.mean(squared, axis=-1, keepdims=True)
    if pooled:
        return ops.sum(squared, axis=1)
    return ops.reshape(squared, (-1, squared.shape[-1]))


def projected_observation_log_precision(
    residual_variance: Tensor,
    effective_sample_size: Tensor,
    log_prior_precision: Tensor,
    squared: Tensor,
    prior_dof: float = 1.0,
) -> Tensor:
    """`observation_log_precision` through `projected_log_precision`.

    The variances are added relative to the largest of each token, so that no
    channel of a head needs a logarithm or an exponential of its own.

    Args:
        residual_variance: `(B, T, H, C)` or `(B, T, H, 1)`.
        effective_sample_size: `(B, T, H, 1)`.
        log_prior_precision: `(B, T, H, 1)`.
        squared: What `squared_projection` returns.
        prior_dof: Prior degrees of freedom `nu0 > 0`.

    Returns:
        Log-precision of shape `(B, T, D)`, float32; about `NO_OBSERVATION`
        for a query that saw nothing.

    Raises:
        ValueError: If `prior_dof` is not positive.

    Example:

    One key of precision 2, whose value a projection doubles:

    >>> one = np.ones((1, 1, 1, 1), "float32")
    >>> projected = projected_observation_log_precision(
    ...     0 * one, one, np.log(2 * one), np.array([[4.0]], "float32"))
    >>> round(float(keras.ops.exp(projected[0, 0, 0])), 4)
    0.5
    """
    _check_prior_dof(prior_dof)
    residual_variance = float32(residual_variance)
    sample_size = float32(effective_sample_size)
    seen = sample_size > 0.0
    n = ops.maximum(sample_size, 1.0)
    # The sum nu0 / p + n r2 of each channel, over the largest of its head.
    sums = n * residual_variance
    log_prior_sum = math.log(prior_dof) - ops.where(
        seen, float32(log_prior_precision), 0.0
    )
    largest = ops.max(sums, axis=-1, keepdims=True)
    log_largest = ops.log(ops.maximum(largest, _TINY))
    log_unit = ops.stop_gradient(ops.maximum(log_prior_sum, log_largest))
    sums = sums * ops.exp(ops.minimum(-log_unit, _LARGEST_EXPONENT))
    # At zero, its minimum, what a variance is a function of has no slope, and
    # the slope of this may be beyond float32.
    sums = ops.where(residual_variance > 0.0, sums, 0.0)
    sums = sums + ops.exp(log_prior_sum - log_unit)

    log_scale = log_unit - ops.log(n) - ops.log(prior_dof + n - 1.0)
    log_scale = ops.where(seen, log_scale, -NO_OBSERVATION)
    log_largest = ops.stop_gradient(ops.max(log_scale, axis=2, keepdims=True))
    sums = ops.where(seen, sums, 1.0)
    variance = sums * ops.exp(log_scale - log_largest)
    length = ops.shape(variance)[1]
    variance = ops.reshape(variance, (-1, length, squared.shape[0]))
    projected = ops.maximum(ops.matmul(variance, squared), _TINY)
    return -(ops.log(projected) + log_largest[..., 0])


def _check_prior_dof(prior_dof: float) -> None:
    if prior_dof <= 0:
        raise ValueError(
            f"`prior_dof` must be positive. Received: prior_dof={prior_dof}"
        )


def projected_log_precision(log_precision: Tensor, squared: Tensor) -> Tensor:
    """`project_log_precision` with the squared projection at hand.

    Args:
        log_precision: `(B, T, H, C)` or `(B, T, H, 1)`.
        squared: What `squared_projection` returns.

    Returns:
        Log-precision of shape `(B, T, D)`, float32.
    """
    log_variance = -float32(log_precision)
    length = ops.shape(log_variance)[1]
    log_variance = ops.reshape(log_variance, (-1, length, squared.shape[0]))
    largest = ops.stop_gradient(ops.max(log_variance, axis=-1, keepdims=True))
    variance = ops.matmul(ops.exp(log_variance - largest), squared)
    return -(ops.log(ops.maximum(variance, _TINY)) + largest)
