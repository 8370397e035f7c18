"""Observe: softmax attention as precision-weighted kriging."""

import math

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.ops._checks import check_heads
from keras_bft.ops._checks import pair_mask
from keras_bft.ops._moment_plan import BLOCK
from keras_bft.ops._moment_rows import MASKED
from keras_bft.ops.kriging_statistics import KrigingObservation
from keras_bft.ops.kriging_statistics import kriging_columns
from keras_bft.ops.kriging_statistics import summarize
from keras_bft.ops.precision import float32
from keras_bft.ops.precision import log_mean_precision
from keras_bft.ops.softmax_moments import WeightDropout
from keras_bft.ops.softmax_moments import softmax_moments
from keras_bft.typing import Tensor


def kriging_weights(
    query: Tensor,
    key: Tensor,
    mean_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    strength: float | Tensor = 1.0,
) -> Tensor:
    """Kriging weights: softmax of the logits plus the keys' log-precision.

    ```
    w_tj = softmax_j(scale q_t . k_j + s lbar_j)
    ```

    At strength one this is the paper's `alpha lambda / sum(alpha lambda)`.

    Args:
        query: `(B, T, H, C)`.
        key: `(B, S, Hk, C)`, where `H` is a multiple of `Hk` (grouped
            queries: consecutive query heads share a key head).
        mean_log_precision: Log of the keys' mean precision, `(B, S)` or per
            head `(B, S, Hk)`. A key of precision zero (minus infinity) is not
            seen. `None` gives plain softmax weights.
        mask: `(B, T, S)` or `(B, 1, S)` bool, `True` where the query may see
            the key. `None` shows every key.
        scale: Logit scale, default `C ** -0.5`.
        strength: Exponent of the precision in the weights.

    Returns:
        Weights of shape `(B, H, T, S)`, float32. They sum to one, or to zero
        for a query that sees no key.

    Raises:
        ValueError: If `H` is no multiple of `Hk`, or `mask` is not of rank 3.
    """
    query, key = ops.convert_to_tensor(query), ops.convert_to_tensor(key)
    check_heads(query, key)
    num_heads, head_dim = query.shape[2:]
    num_key_heads = key.shape[2]
    scale = head_dim**-0.5 if scale is None else scale
    length = ops.shape(query)[1]
    groups = num_heads // num_key_heads
    query = ops.reshape(
        query * scale,
        (-1, length, num_key_heads, groups, head_dim),
    )
    logits = float32(ops.einsum("btkgc,bskc->bkgts", query, key))
    if mask is not None:
        mask = pair_mask(mask)[:, None, None]
    bias: Tensor = 0.0
    if mean_log_precision is not None:
        bias = float32(mean_log_precision)
        if bias.ndim == 2:
            bias = bias[..., None]
        bias = ops.transpose(bias, (0, 2, 1))[:, :, None, None, :]
        known = bias > -math.inf
        mask = known if mask is None else ops.logical_and(mask, known)
        bias = ops.multiply(strength, ops.where(known, bias, 0.0))
    if mask is not None:
        logits = ops.where(mask, logits + bias, MASKED)
    num_keys = key.shape[1]
    # Only a known number: an export leaves the length open.
    if isinstance(num_keys, int) and num_keys == 1:
        # Keras warns of a softmax over one entry. This is one, and unlike a
        # constant it has a gradient (zero).
        weights = ops.exp(logits - logits)
    else:
        weights = ops.softmax(logits, axis=-1)
    if mask is not None:
        seen = ops.any(mask, axis=-1, keepdims=True)
        weights = weights * cast(seen, weights.dtype)
    return ops.reshape(weights, (-1, num_heads, length, ops.shape(key)[1]))


def kriging_observation(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_log_precision: Tensor | None = None,
    value_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    strength: float | Tensor = 1.0,
    variance: str = "channel",
    mean_log_precision: Tensor | None = None,
    causal: bool = False,
    differentiate: bool = True,
    dropped: WeightDropout | None = None,
    block: int | None = BLOCK,
    kernel: bool = False,
) -> KrigingObservation:
    """Observe: precision-weighted attention and its statistics.

    The weights and the estimate are the paper's; the statistics are computed
    as derived for this library. Values and gradients are those of
    `kriging_weights` and `kriging_statistics`, but the weights of all queries
    are never held at once: memory grows with `T + S`, see `softmax_moments`.

    Args:
        query: `(B, T, H, C)`.
        key: `(B, S, Hk, C)`, `H` a multiple of `Hk`.
        value: `(B, S, Hk, C)`.
        key_log_precision: Log-precision of the keys, `(B, S, D)` or
            `(B, S, 1)`; default zero (precision one).
        value_log_precision: Log-precision of the values in their own units,
            `(B, S, Hk)`; default the log of the keys' mean precision.
        mask: `(B, T, S)` or `(B, 1, S)` bool, `True` where the query may see
            the key.
        scale: Logit scale, default `C ** -0.5`.
        strength: Filter strength, the exponent of the keys' precision.
        variance: `"channel"` keeps the residual variance of each channel,
            `"head"` pools it over the channels of a head.
        mean_log_precision: Log of the keys' mean precision, `(B, S)` or per
            head `(B, S, Hk)`, as in `kriging_weights`. Defaults to that of
            `key_log_precision`.
        causal: Whether a query sees its own and earlier keys only, on top of
            the mask. Needs `T = S`.
        differentiate: Whether gradients flow through the statistics. The
            estimate always carries them.
        dropped: Dropout of the weights, see `WeightDropout`.
        block: Number of queries whose weights are held at a time, or `None`
            for all.
        kernel: Whether a fused kernel computes it on a GPU, see
            `softmax_moments`.

    Returns:
        A `KrigingObservation`.

    Raises:
        ValueError: If `variance` is unknown, the numbers of heads do not
            divide, or `mask` is not of rank 3.

    Example:

    Two equally relevant keys, the second three times as precise:

    >>> query = np.zeros((1, 1, 1, 1), "float32")
    >>> key = np.zeros((1, 2, 1, 1), "float32")
    >>> value = np.array([0.0, 4.0], "float32").reshape(1, 2, 1, 1)
    >>> log_precision = np.log([[[1.0], [3.0]]]).astype("float32")
    >>> seen = kriging_observation(query, key, value, log_precision)
    >>> [round(float(np.squeeze(keras.ops.convert_to_numpy(x))), 4)
    ...  for x in seen]
    [3.0, 3.0, 1.6, 0.9163]
    """
    value = ops.convert_to_tensor(value)
    if mean_log_precision is None and key_log_precision is not None:
        mean_log_precision = log_mean_precision(key_log_precision)
        if value_log_precision is None:
            value_log_precision = ops.repeat(
                mean_log_precision[..., None], value.shape[2], axis=-1
            )
    if value.shape[2] != ops.convert_to_tensor(key).shape[2]:
        raise ValueError(
            "Keys and values must have the same number of heads. "
            f"Received: key.shape={key.shape}, value.shape={value.shape}"
        )
    columns = kriging_columns(
        value, value_log_precision, mask, variance, differentiate
    )
    first = columns.centered
    if dropped is not None and dropped.rate is not None:
        # For the sum of the weights that dropout leaves: it is not one.
        first = ops.concatenate([first, ops.ones_like(first[..., :1])], -1)
    moments = softmax_moments(
        query,
        key,
        ops.concatenate([first, columns.others], axis=-1),
        _bias(mean_log_precision, strength),
        mask,
        causal,
        scale,
        estimated=first.shape[-1],
        differentiate=differentiate,
        dropped=dropped,
        block=block,
        kernel=kernel,
    )
    return summarize(columns, moments, value.dtype)


def blockwise_estimate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean_log_precision: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    strength: float | Tensor = 1.0,
    dropped: WeightDropout | None = None,
    block: int | None = BLOCK,
    kernel: bool = False,
) -> Tensor:
    """`kriging_estimate` of `kriging_weights` that never holds all weights.

    Args:
        query: `(B, T, H, C)`.
        key: `(B, S, Hk, C)`, `H` a multiple of `Hk`.
        value: `(B, S, Hk, C)`.
        mean_log_precision: As in `kriging_weights`: `None` for standard
            attention.
        mask: `(B, T, S)` or `(B, 1, S)` bool, `True` where the query may see
            the key.
        causal: As in `kriging_observation`, like what follows.
        strength: Filter strength, the exponent of the keys' precision.
        dropped: Dropout of the weights.
        block: Number of queries whose weights are held at a time.
        kernel: Whether a fused kernel computes it on a GPU.

    Returns:
        `(B, T, H, C)` in the dtype of `value`.

    Raises:
        ValueError: As `kriging_weights`.

    Example:

    >>> x = np.random.normal(size=(2, 500, 4, 16)).astype("float32")
    >>> tuple(blockwise_estimate(x, x, x, causal=True).shape)
    (2, 500, 4, 16)
    """
    return softmax_moments(
        query,
        key,
        value,
        _bias(mean_log_precision, strength),
        mask,
        causal,
        statistics=False,
        dropped=dropped,
        block=block,
        kernel=kernel,
    ).estimate


def _bias(
    mean_log_precision: Tensor | None, strength: float | Tensor
) -> Tensor | None:
    """What the keys' precision adds to the logits."""
    if mean_log_precision is None:
        return None
    bias = float32(mean_log_precision)
    known = bias > -math.inf
    bias = ops.multiply(strength, ops.where(known, bias, 0.0))
    return ops.where(known, bias, MASKED)
