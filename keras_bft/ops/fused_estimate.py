"""Standard attention by the backend's own function."""

from keras import ops

from keras_bft.ops._checks import check_heads
from keras_bft.ops._checks import pair_mask
from keras_bft.typing import Tensor


def fused_estimate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """`blockwise_estimate` of standard attention, by what the backend has.

    That is `keras.ops.dot_product_attention`. On PyTorch it is one function,
    faster than products and softmax apart; on JAX and TensorFlow, on a CPU, it
    is these. It sums nothing but the values: the filter's statistics need
    `kriging_observation`.

    Args:
        query: `(B, T, H, C)`.
        key: `(B, S, Hk, C)`, `H` a multiple of `Hk`.
        value: `(B, S, Hk, C)`.
        mask: `(B or 1, T, S)` or `(B or 1, 1, S)` bool, `True` where the query
            may see the key.
        causal: Whether a query may see its own and earlier keys only, on top
            of the mask. Needs `T = S`.

    Returns:
        `(B, T, H, C)`, zero for a query that sees no key.

    Raises:
        ValueError: If `H` is no multiple of `Hk`, or `mask` is not of rank 3.

    Example:

    The first query sees one key, the second two that are alike:

    >>> query = key = np.zeros((1, 2, 1, 1), "float32")
    >>> value = np.array([2.0, 4.0], "float32").reshape(1, 2, 1, 1)
    >>> fused = fused_estimate(query, key, value, causal=True)
    >>> keras.ops.convert_to_numpy(fused).ravel().tolist()
    [2.0, 3.0]
    """
    query, key = ops.convert_to_tensor(query), ops.convert_to_tensor(key)
    check_heads(query, key)
    if mask is None:
        return ops.dot_product_attention(query, key, value, is_causal=causal)
    mask = pair_mask(mask)
    if causal:
        position = ops.arange(ops.shape(query)[1], dtype="int32")
        earlier = position[:, None] >= position[None, :]
        mask = ops.logical_and(mask, earlier)
    estimate = ops.dot_product_attention(query, key, value, mask=mask[:, None])
    # Keras gives such a query the mean of all values.
    seen = ops.any(mask, axis=-1)[:, :, None, None]
    return ops.where(seen, estimate, ops.zeros_like(estimate))
