"""Weighted sums of softmax attention that never hold all the weights."""

from typing import NamedTuple

from keras import ops

from keras_bft.ops._casting import float32
from keras_bft.ops._checks import check_heads
from keras_bft.ops._checks import pair_mask
from keras_bft.ops._gpu.fused_moments import fused_moments
from keras_bft.ops._gpu.fused_moments import supports
from keras_bft.ops._moment_plan import BLOCK
from keras_bft.ops._moment_plan import MomentPlan
from keras_bft.ops._moment_rows import MomentRows
from keras_bft.ops._moment_rows import swap
from keras_bft.typing import Tensor


class WeightDropout(NamedTuple):
    """Which weights dropout leaves, and what becomes of them.

    Attributes:
        kept: `(B, Hk, T * H / Hk, S)` bool, rows as `weight_rows` says.
        rate: Share of weights dropped, for inverted dropout: those left are
            divided by `1 - rate`, and the statistics are those of all
            weights. `None` renormalises them: a dropped key is not seen.
    """

    kept: Tensor
    rate: float | None


class Moments(NamedTuple):
    """What `softmax_moments` sums.

    Attributes:
        estimate: Weighted sums of the first columns, `(B, T, H, E)`, after
            dropout.
        sums: Weighted sums of all columns, `(B, T, H, M)`, before inverted
            dropout; none (`M = 0`) without statistics.
        squared_weights: Sum of the squared weights, `(B, T, H, 1)`; none
            without statistics.
    """

    estimate: Tensor
    sums: Tensor
    squared_weights: Tensor


def softmax_moments(
    query: Tensor,
    key: Tensor,
    columns: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    statistics: bool = True,
    estimated: int | None = None,
    differentiate: bool = True,
    dropped: WeightDropout | None = None,
    block: int | None = BLOCK,
    kernel: bool = False,
) -> Moments:
    """Sums over keys, weighted by the softmax of the logits plus a bias.

    ```
    w_tj = softmax_j(scale q_t . k_j + b_j)     sum_j w_tj x_j,  sum_j w_tj^2
    ```

    Exact. The gradient computes the weights again, a block of queries at a
    time, so that memory grows with `T + S` and not with `T S`; a causal block
    reads no key after its last query. There is no gradient of the gradient:
    use `kriging_weights` where one is needed.

    Args:
        query: `(B, T, H, C)`.
        key: `(B, S, Hk, C)`, `H` a multiple of `Hk`.
        columns: What is summed, `(B, S, Hk, M)`.
        bias: Added to the logits of each key, `(B, S)` or `(B, S, Hk)`.
        mask: `(B, T, S)` or `(B, 1, S)` bool, `True` where the query may see
            the key.
        causal: Whether a query may see its own and earlier keys only, on top
            of the mask. Needs `T = S`.
        scale: Logit scale, default `C ** -0.5`.
        statistics: Whether all sums and the squared weights are wanted, and
            not the estimate alone.
        estimated: `E`, the number of first columns that make the estimate.
            Defaults to all.
        differentiate: Whether `sums` and `squared_weights` carry gradients.
            The estimate always does.
        dropped: Dropout of the weights.
        block: Number of queries whose weights are held at a time, or `None`
            for all. It is all where the lengths are not known.
        kernel: Whether a fused kernel computes it on a GPU, in Pallas with JAX
            and in Triton with PyTorch (extra `triton`). Experimental: it has
            been compiled and run step by step on a CPU, and not yet on a GPU.
            What has no kernel is computed in blocks: TensorFlow, CPUs,
            inverted dropout, float64, lengths that are not known and more
            than 512 channels and columns together.

    Returns:
        Moments in the dtype of `columns`, zero for a query that sees no key.

    Raises:
        ValueError: If `H` is no multiple of `Hk`, or `mask` is not of rank 3.

    Example:

    Two keys, the second three times as heavy; the first query sees one:

    >>> query = key = np.zeros((1, 2, 1, 1), "float32")
    >>> columns = np.array([0.0, 4.0], "float32").reshape(1, 2, 1, 1)
    >>> bias = np.log([[1.0, 3.0]]).astype("float32")
    >>> moments = softmax_moments(query, key, columns, bias, causal=True)
    >>> [keras.ops.convert_to_numpy(x).ravel().round(4).tolist()
    ...  for x in moments[1:]]
    [[0.0, 3.0], [1.0, 0.625]]
    """
    query, key = ops.convert_to_tensor(query), ops.convert_to_tensor(key)
    heads, num_heads = key.shape[2], query.shape[2]
    check_heads(query, key)
    groups = num_heads // heads
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    length = ops.shape(query)[1]
    arrays = {
        "query": weight_rows(query * scale, heads),
        "key": ops.transpose(key, (0, 2, 1, 3)),
        "columns": ops.transpose(columns, (0, 2, 1, 3)),
    }
    if bias is not None:
        bias = float32(bias)
        shared = len(bias.shape) == 2
        bias = bias[:, None] if shared else ops.transpose(bias, (0, 2, 1))
        arrays["bias"] = bias[..., None]
    width = columns.shape[-1]
    estimated = width if estimated is None else estimated
    kept, rate = (None, None) if dropped is None else dropped
    arrays |= _masks(mask, groups, kept if rate is None else None)
    if rate is not None:
        arrays["kept"] = kept
    rows = MomentRows(
        groups=groups,
        causal=causal,
        statistics=statistics,
        estimated=estimated,
        differentiate=differentiate,
        scale=None if rate is None else 1.0 / (1.0 - rate),
    )
    if kernel and supports(rows, arrays):
        result = fused_moments(rows, arrays)
    else:
        plan = MomentPlan(rows, (query.shape[1], key.shape[1]), block)
        result = plan.moments(arrays)
    shape = (-1, heads, length, groups, result.shape[-1])
    result = ops.transpose(ops.reshape(result, shape), (0, 2, 1, 3, 4))
    result = ops.reshape(result, (-1, length, num_heads, result.shape[-1]))
    if not statistics:
        return Moments(result, result[..., :0], result[..., :0])
    start = 0 if rate is None else width + 1
    estimate = result[..., start : start + estimated]
    if not differentiate:
        result = ops.stop_gradient(result)
    return Moments(
        estimate, result[..., :width], result[..., width : width + 1]
    )


def weight_rows(query: Tensor, heads: int) -> Tensor:
    """`(B, T, H, C)` as `(B, Hk, T * H / Hk, C)`.

    The heads that share a key head are rows of one product: queries first,
    then their heads.
    """
    length, num_heads = ops.shape(query)[1], query.shape[2]
    groups, channels = num_heads // heads, query.shape[-1]
    query = ops.reshape(query, (-1, length, heads, groups, channels))
    query = ops.transpose(query, (0, 2, 1, 3, 4))
    return ops.reshape(query, (-1, heads, length * groups, channels))


def _masks(
    mask: Tensor | None, groups: int, kept: Tensor | None
) -> dict[str, Tensor]:
    """What may be seen of each row, or of all.

    Args:
        mask: `(B or 1, T or 1, S)` bool, or `None`.
        groups: Number of query heads that share a key head.
        kept: Of renormalised dropout, `(B, Hk, rows, S)` bool, or `None`.

    Returns:
        `visible`, `(B or 1, Hk or 1, rows, S)`, or `visible_keys`,
        `(B or 1, 1, S, 1)`, or neither.
    """
    if mask is None:
        return {} if kept is None else {"visible": kept}
    mask = pair_mask(mask)
    if mask.shape[1] == 1 and kept is None:
        return {"visible_keys": swap(mask[:, None])}
    if mask.shape[1] != 1 and groups > 1:
        mask = ops.repeat(mask, groups, axis=1)
    mask = mask[:, None]
    return {"visible": mask if kept is None else ops.logical_and(mask, kept)}
