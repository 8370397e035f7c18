"""What the kriging weights say of the values: estimate and statistics."""

from typing import NamedTuple

from keras import ops

from keras_bft.ops.precision import NO_OBSERVATION
from keras_bft.ops.precision import float32
from keras_bft.ops.softmax_moments import Moments
from keras_bft.typing import Tensor

# Smallest positive normal float32, about: keeps logarithms finite.
_TINY = 1.0e-37

VARIANCES = ("channel", "head")


class KrigingObservation(NamedTuple):
    """What attention observes, with the statistics of its reliability.

    Attributes:
        estimate: Kriging estimate of the values, `(B, T, H, C)`, in the dtype
            of the values. Zero for a query that sees no key.
        residual_variance: Weighted variance of the values around the
            estimate, `(B, T, H, C)`, or `(B, T, H, 1)` pooled over the
            channels of a head. Float32, never negative.
        effective_sample_size: `1 / sum_j w_j^2`, `(B, T, H, 1)`; zero for a
            query that sees no key. Float32.
        log_prior_precision: Log of the kriging-weighted mean precision of the
            values, `(B, T, H, 1)`. Float32.
    """

    estimate: Tensor
    residual_variance: Tensor
    effective_sample_size: Tensor
    log_prior_precision: Tensor


def kriging_estimate(weights: Tensor, value: Tensor) -> Tensor:
    """Weighted mean of the values, `sum_j w_tj v_j`.

    Args:
        weights: `(B, H, T, S)`.
        value: `(B, S, Hk, C)`.

    Returns:
        `(B, T, H, C)` in the dtype of `value`.

    Raises:
        ValueError: If `H` is no multiple of `Hk`.
    """
    num_heads = weights.shape[1]
    length, num_keys = ops.shape(weights)[2:]
    num_value_heads, channels = value.shape[2:]
    if num_heads % num_value_heads:
        raise ValueError(
            "The number of query heads must be a multiple of the number of "
            f"value heads. Received: weights.shape={weights.shape}, "
            f"value.shape={value.shape}"
        )
    weights = ops.reshape(
        ops.cast(weights, value.dtype),
        (-1, num_value_heads, num_heads // num_value_heads, length, num_keys),
    )
    estimate = ops.einsum("bkgts,bskc->btkgc", weights, value)
    return ops.reshape(estimate, (-1, length, num_heads, channels))


def kriging_statistics(
    weights: Tensor,
    value: Tensor,
    value_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    variance: str = "channel",
    differentiate: bool = True,
) -> KrigingObservation:
    """Estimate, residual variance, sample size and prior from the weights.

    ```
    e  = sum_j w_j v_j              r2 = sum_j w_j v_j^2 - e^2
    n  = 1 / sum_j w_j^2            p  = sum_j w_j pi_j
    ```

    `r2` does not change when a constant is added to all values. The value of
    the first visible key is subtracted before squaring, so that it stays
    right when the mean is much larger than the spread. That key is the same
    whatever padding or future keys follow it. A query whose `p` is more than
    `exp(85)` times smaller than the largest visible precision gets that floor.

    Args:
        weights: Kriging weights, `(B, H, T, S)`, rows that sum to one or zero.
        value: `(B, S, Hk, C)`.
        value_log_precision: `(B, S, Hk)`, default zero (precision one).
        mask: As in `kriging_weights`.
        variance: `"channel"` or `"head"`.
        differentiate: Whether gradients flow through `r2`, `n` and `p`. The
            estimate always carries them.

    Returns:
        A `KrigingObservation`.

    Raises:
        ValueError: If `variance` is unknown, or `H` is no multiple of `Hk`.
    """
    value = ops.convert_to_tensor(value)
    columns = kriging_columns(
        value, value_log_precision, mask, variance, differentiate
    )
    total = ops.transpose(ops.sum(weights, axis=-1), (0, 2, 1))[..., None]
    sums = kriging_estimate(weights, columns.centered)
    estimate = ops.concatenate([sums, total], axis=-1)
    if not differentiate:
        sums = ops.stop_gradient(sums)
        weights = ops.stop_gradient(weights)
    others = kriging_estimate(weights, columns.others)
    squared_weights = ops.sum(ops.square(weights), axis=-1)
    squared_weights = ops.transpose(squared_weights, (0, 2, 1))[..., None]
    moments = Moments(
        estimate, ops.concatenate([sums, others], axis=-1), squared_weights
    )
    return summarize(columns, moments, value.dtype)


class KrigingColumns(NamedTuple):
    """What the weights sum, besides themselves and their squares.

    Attributes:
        centered: Values less the reference, `(B, S, Hk, C)`, float32.
        others: `(B, S, Hk, M)`: squares of the centered values, by channel or
            their mean, and the relative precisions if there are any.
        reference: Value of the first visible key, `(B, 1, Hk, C)`.
        log_unit: Log of the largest precision, `(B, 1, Hk)`, or `None`.
    """

    centered: Tensor
    others: Tensor
    reference: Tensor
    log_unit: Tensor | None


def kriging_columns(
    value: Tensor,
    value_log_precision: Tensor | None,
    mask: Tensor | None,
    variance: str,
    differentiate: bool,
) -> KrigingColumns:
    """Columns for the statistics, see `kriging_statistics`."""
    if variance not in VARIANCES:
        raise ValueError(
            f"`variance` must be one of {VARIANCES}. "
            f"Received: variance={variance!r}"
        )
    visible = seen_keys(value, mask)
    # A half-precision estimate would spoil the difference of squares.
    value = float32(value)
    reference = ops.stop_gradient(first_visible(value, visible))
    centered = value - reference
    constant = centered if differentiate else ops.stop_gradient(centered)
    squares = ops.square(constant)
    if variance == "head":
        squares = ops.mean(squares, axis=-1, keepdims=True)
    others, log_unit = squares, None
    if value_log_precision is not None:
        if not differentiate:
            value_log_precision = ops.stop_gradient(value_log_precision)
        precision, log_unit = _relative_precision(value_log_precision, visible)
        others = ops.concatenate([squares, precision], axis=-1)
    return KrigingColumns(centered, others, reference, log_unit)


def summarize(
    columns: KrigingColumns, moments: Moments, dtype: str
) -> KrigingObservation:
    """The observation from the weighted sums of its columns.

    Args:
        columns: What was summed.
        moments: Their sums: of the centered values, of a column of ones if
            the weights need not sum to one, and of the other columns.
        dtype: Dtype of the estimate.

    Returns:
        A `KrigingObservation`.
    """
    squared_weights = moments.squared_weights
    seen = squared_weights > 0.0
    channels, num_others = columns.centered.shape[-1], columns.others.shape[-1]
    groups = moments.sums.shape[2] // columns.others.shape[2]
    reference = ops.repeat(columns.reference, groups, axis=2)
    total = moments.estimate[..., channels:]
    if total.shape[-1] == 0:
        total = ops.cast(seen, reference.dtype)
    estimate = moments.estimate[..., :channels] + total * reference

    others = moments.sums[..., moments.sums.shape[-1] - num_others :]
    num_squares = num_others - int(columns.log_unit is not None)
    squared_estimate = ops.square(moments.sums[..., :channels])
    if num_squares == 1:
        squared_estimate = ops.mean(squared_estimate, axis=-1, keepdims=True)
    residual_variance = ops.maximum(
        others[..., :num_squares] - squared_estimate, 0.0
    )
    sample_size = ops.where(
        seen, 1.0 / ops.where(seen, squared_weights, 1.0), 0.0
    )
    if columns.log_unit is None:
        log_prior = ops.where(seen, 0.0, NO_OBSERVATION)
    else:
        mean = ops.where(seen, others[..., num_squares:], 1.0)
        log_unit = ops.repeat(columns.log_unit, groups, axis=-1)[..., None]
        log_prior = ops.log(ops.maximum(mean, _TINY)) + log_unit
        log_prior = ops.where(seen, log_prior, NO_OBSERVATION)
    return KrigingObservation(
        ops.cast(estimate, dtype), residual_variance, sample_size, log_prior
    )


def seen_keys(value: Tensor, mask: Tensor | None) -> Tensor | None:
    """Keys that some query may see, `(B, S)` bool, or `None` for all."""
    if mask is None:
        return None
    return ops.any(ops.cast(mask, "bool"), axis=1)


def first_visible(value: Tensor, visible: Tensor | None) -> Tensor:
    """Value of the first visible key, `(B, 1, Hk, C)`."""
    if visible is None:
        return value[:, :1]
    first = ops.argmax(ops.cast(visible, "int32"), axis=1)
    # On PyTorch, Keras' gathers fix the lengths of an export.
    index = ops.arange(0, ops.shape(value)[1], dtype=first.dtype)
    is_first = ops.equal(index, first[:, None])[:, :, None, None]
    return ops.sum(ops.where(is_first, value, 0.0), axis=1, keepdims=True)


def _relative_precision(
    log_precision: Tensor, visible: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Precisions relative to the largest, and the log of that, `(B, 1, Hk)`."""
    log_precision = float32(log_precision)
    if visible is not None:
        log_precision = ops.where(
            visible[..., None], log_precision, NO_OBSERVATION
        )
    log_precision = ops.maximum(log_precision, NO_OBSERVATION)
    largest = ops.max(log_precision, axis=1, keepdims=True)
    largest = ops.stop_gradient(largest)
    return ops.exp(log_precision - largest)[..., None], largest
