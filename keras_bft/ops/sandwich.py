"""Observe without normalised weights (HSTU): estimate and robust variance."""

from typing import Any
from typing import NamedTuple

from keras import ops

from keras_bft.ops._checks import pair_mask
from keras_bft.ops.kriging_statistics import VARIANCES
from keras_bft.ops.kriging_statistics import first_visible
from keras_bft.ops.kriging_statistics import kriging_estimate
from keras_bft.ops.kriging_statistics import seen_keys
from keras_bft.ops.precision import NO_OBSERVATION
from keras_bft.ops.precision import float32
from keras_bft.ops.precision import log_mean_precision
from keras_bft.typing import Tensor

# Exponent of keys that are not seen, below that of any that is.
_HIDDEN = -1.0e30

# Largest log-variance of a value: its square's gradients stay in float32.
_LARGEST_LOG_VARIANCE = 40.0


class SandwichObservation(NamedTuple):
    """What unnormalised attention observes, and how reliably.

    Attributes:
        estimate: Weighted sum of the values, `(B, T, H, C)`, in the dtype of
            the values. Zero for a query that sees no key.
        variance: Variance of the estimate, `(B, T, H, C)`, or `(B, T, H, 1)`
            pooled over the channels of a head. Float32, never negative, zero
            for a query that sees no key.
    """

    estimate: Tensor
    variance: Tensor


def known_keys(key_log_precision: Tensor) -> Tensor:
    """Keys whose precision is not zero.

    Args:
        key_log_precision: `(B, S, D)` or `(B, S, 1)`. Minus infinity and
            `NO_OBSERVATION` in all channels stand for a precision of zero.

    Returns:
        `(B, S)` bool.
    """
    # The mean of `NO_OBSERVATION` is that number up to rounding only.
    return log_mean_precision(key_log_precision) > NO_OBSERVATION / 2


def sandwich_observation(
    weights: Tensor,
    value: Tensor,
    key_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    value_log_precision: Tensor | None = None,
    strength: float | Tensor = 1.0,
    variance: str = "channel",
    differentiate: bool = True,
) -> SandwichObservation:
    """Weighted sum of values whose weights need not sum to one.

    ```
    a_tj = w_tj lambda_j^s / mean_i(lambda_i^s)      over the keys t may see
    e_t  = sum_j a_tj v_j
    V_t  = sum_j a_tj^2 ((v_j - m_t)^2 + 1 / (n_t pi_j))
    ```

    with `m_t` the mean of the `n_t` visible values: the
    heteroscedasticity-consistent sandwich, plus one pseudo-observation of the
    values' own variance, which the visible keys share. Derived for this
    library. Precisions count relative to their mean, so equal precisions, and
    a strength of zero, leave the weights exactly as they are.

    The square is expanded, so no `(T, S, C)` tensor is made, and the value of
    the first visible key is subtracted before, so that it stays right when
    the mean is much larger than the spread. Variances `1 / pi` beyond
    `exp(40)` count as that.

    Args:
        weights: Signed pointwise attention weights, `(B, H, T, S)`.
        value: `(B, S, H, C)`.
        key_log_precision: Log-precision of the keys, `(B, S, D)` or
            `(B, S, 1)`. A key of precision zero is not seen, see
            `known_keys`. `None` gives all keys the precision one.
        mask: `(B, T, S)` or `(B, 1, S)` bool, `True` where the query may see
            the key. `None` shows every key.
        value_log_precision: Log-precision of the values in their own units,
            `(B, S, H)`; default the log of the keys' mean precision.
        strength: Filter strength, the exponent of the keys' precision.
        variance: `"channel"` keeps the variance of each channel, `"head"`
            pools it (mean) over the channels of a head.
        differentiate: Whether gradients flow through the variance. The
            estimate always carries them.

    Returns:
        A `SandwichObservation`.

    Raises:
        ValueError: If `variance` is unknown, the numbers of heads differ, or
            `mask` is not of rank 3.

    Example:

    Two keys, the second three times as precise:

    >>> weights = np.full((1, 1, 1, 2), 0.5, "float32")
    >>> value = np.array([0.0, 4.0], "float32").reshape(1, 2, 1, 1)
    >>> log_precision = np.log([[[1.0], [3.0]]]).astype("float32")
    >>> observed = sandwich_observation(weights, value, log_precision)
    >>> [round(float(np.squeeze(keras.ops.convert_to_numpy(x))), 4)
    ...  for x in observed]
    [3.0, 2.625]
    """
    if variance not in VARIANCES:
        raise ValueError(
            f"`variance` must be one of {VARIANCES}. "
            f"Received: variance={variance!r}"
        )
    weights = float32(weights)
    value = ops.convert_to_tensor(value)
    if weights.shape[1] != value.shape[2]:
        raise ValueError(
            "The weights and the values must have the same number of heads. "
            f"Received: weights.shape={weights.shape}, "
            f"value.shape={value.shape}"
        )
    num_keys = ops.shape(value)[1]
    visible = _visible_pairs(mask, key_log_precision, num_keys)
    weights = _precise_weights(weights, key_log_precision, visible, strength)
    estimate = kriging_estimate(weights, value)

    if value_log_precision is None and key_log_precision is not None:
        value_log_precision = ops.repeat(
            log_mean_precision(key_log_precision)[..., None],
            value.shape[2],
            axis=-1,
        )
    value = float32(value)
    if not differentiate:
        weights, value = ops.stop_gradient(weights), ops.stop_gradient(value)
        if value_log_precision is not None:
            value_log_precision = ops.stop_gradient(value_log_precision)
    return SandwichObservation(
        estimate,
        _variance(weights, value, visible, value_log_precision, variance),
    )


def sandwich_weights(
    weights: Tensor,
    key_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    strength: float | Tensor = 1.0,
) -> Tensor:
    """The weights `a_tj` of `sandwich_observation`, zero where not visible.

    Args:
        weights: Signed pointwise attention weights, `(B, H, T, S)`.
        key_log_precision: `(B, S, D)` or `(B, S, 1)`, or `None`.
        mask: `(B, T, S)` or `(B, 1, S)` bool.
        strength: Filter strength, the exponent of the keys' precision.

    Returns:
        `(B, H, T, S)`, float32.

    Example:

    >>> log_precision = np.log([[[1.0], [3.0]]]).astype("float32")
    >>> weights = sandwich_weights(np.ones((1, 1, 1, 2)), log_precision)
    >>> keras.ops.convert_to_numpy(weights).round(2).tolist()
    [[[[0.5, 1.5]]]]
    """
    weights = float32(weights)
    num_keys = ops.shape(weights)[-1]
    visible = _visible_pairs(mask, key_log_precision, num_keys)
    return _precise_weights(weights, key_log_precision, visible, strength)


def _precise_weights(
    weights: Tensor,
    key_log_precision: Tensor | None,
    visible: Tensor,
    strength: float | Tensor,
) -> Tensor:
    if key_log_precision is not None:
        relative = _relative_precision(
            log_mean_precision(key_log_precision), visible, strength
        )
        weights = ops.multiply(weights, relative[:, None])
    return ops.where(visible[:, None], weights, 0.0)


def _visible_pairs(
    mask: Tensor | None, key_log_precision: Tensor | None, num_keys: Any
) -> Tensor:
    """Keys that each query sees, `(B or 1, T or 1, S)` bool."""
    visible = ops.ones((1, 1, num_keys), dtype="bool")
    if mask is not None:
        visible = pair_mask(mask)
    if key_log_precision is not None:
        known = known_keys(key_log_precision)
        visible = ops.logical_and(visible, known[:, None])
    return visible


def _relative_precision(
    log_precision: Tensor, visible: Tensor, strength: float | Tensor
) -> Tensor:
    """`lambda^s` over its mean among the keys that a query sees.

    Each query subtracts a largest of its own, so that keys which it does not
    see have no part in its rounding.
    """
    known = ops.where(visible, log_precision[:, None], 0.0)
    exponent = ops.where(visible, ops.multiply(strength, known), _HIDDEN)
    largest = ops.max(exponent, axis=-1, keepdims=True)
    power = ops.exp(exponent - ops.stop_gradient(largest))
    power = ops.where(visible, power, 0.0)
    total = ops.sum(power, axis=-1, keepdims=True)
    return power * _count(visible, power.dtype) / ops.maximum(total, 1.0)


def _count(visible: Tensor, dtype: str) -> Tensor:
    return ops.sum(ops.cast(visible, dtype), axis=-1, keepdims=True)


def _variance(
    weights: Tensor,
    value: Tensor,
    visible: Tensor,
    value_log_precision: Tensor | None,
    kind: str,
) -> Tensor:
    """The sandwich, `(B, T, H, C)` or `(B, T, H, 1)`."""
    num_keys, num_heads, channels = ops.shape(value)[1:]
    seen: Tensor = seen_keys(value, visible)
    reference = ops.stop_gradient(first_visible(value, seen))
    centered = ops.where(seen[..., None, None], value - reference, 0.0)
    count = ops.maximum(_count(visible, value.dtype), 1.0)
    mean = ops.matmul(
        ops.cast(visible, value.dtype),
        ops.reshape(centered, (-1, num_keys, num_heads * channels)),
    )
    mean = ops.reshape(
        mean / count, (-1, ops.shape(mean)[1], num_heads, channels)
    )

    squares = ops.square(centered)
    if kind == "head":
        squares = ops.mean(squares, axis=-1, keepdims=True)
    ones = ops.ones_like(centered[..., :1])
    prior = ones
    if value_log_precision is not None:
        log_variance = ops.where(
            seen[..., None], -float32(value_log_precision), 0.0
        )
        log_variance = ops.minimum(log_variance, _LARGEST_LOG_VARIANCE)
        prior = ops.exp(log_variance)[..., None]
    columns = ops.concatenate([centered, squares, prior, ones], axis=-1)
    sums = kriging_estimate(ops.square(weights), columns)
    # sum a^2 (v - m)^2 = sum a^2 v^2 - m (2 sum a^2 v - m sum a^2)
    cross = mean * (2.0 * sums[..., :channels] - mean * sums[..., -1:])
    if kind == "head":
        cross = ops.mean(cross, axis=-1, keepdims=True)
    spread = ops.maximum(sums[..., channels:-2] - cross, 0.0)
    return spread + sums[..., -2:-1] / count[..., None]
