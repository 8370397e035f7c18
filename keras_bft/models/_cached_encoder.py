"""The compiled step of incremental inference."""

from typing import Any

import keras
from keras import ops

from keras_bft.typing import Tensor


class CachedEncoder(keras.Model):
    """Reads items that come after those in its caches.

    A model of its own for Keras to compile. It has no weights besides those of
    the recommender.

    Args:
        recommender: A built `FilterRecommender` whose layers are causal.

    Call arguments:
        inputs: Dict of `"items"`, `(B, T)` int, 0 is padding, at the right;
            `"num_held"`, `(B,)` int, the number of items in the caches;
            `"timestamps"`, `(B, T)` int32, if the recommender reads them; and
            `"caches"`, one of each layer, of at least `T` slots more than are
            held, or nothing for users of whom nothing is held.

    Returns:
        Dict of `"state"`, the state after the last new item that scores,
        `(B, D)`; `"log_precision"`, that of its channels, `(B, D)` float32, if
        the model has one; and `"caches"`, for each layer what its cache has to
        hold of the new items, `(B, T, ...)`.
    """

    def __init__(self, recommender: Any) -> None:
        super().__init__(autocast=False, name="cached_encoder")
        self.recommender = recommender
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        model = self.recommender
        items, num_held = inputs["items"], inputs["num_held"]
        batch, length = ops.shape(items)
        caches = inputs.get("caches")
        if caches is None:
            caches = [block.make_cache(batch, length) for block in model.blocks]
        # Where a key is held does not matter to attention. The new ones take
        # the last slots, the same for all users, which no window reaches yet.
        first = ops.shape(caches[0]["key"])[1] - length
        real, index = items > 0, ops.arange(length, dtype="int32")
        position = num_held[:, None] + index
        held = ops.arange(first, dtype="int32") < num_held[:, None, None]
        new = ops.logical_and(index[:, None] >= index, real[:, None])
        held = ops.logical_and(held, ops.ones_like(new[:, :, :1]))
        options = {
            "attention_mask": ops.concatenate([held, new], axis=-1),
            "cache_index": first,
            **model.cache_inputs(position, inputs.get("timestamps")),
        }
        state, log_precision = model.embed(items, position)
        kept = []
        for block, cache in zip(model.blocks, caches, strict=True):
            like = block.make_cache(1, 1)
            cache = {n: ops.cast(x, like[n].dtype) for n, x in cache.items()}
            state, *rest, cache = block(
                state, log_precision, cache=cache, **options
            )
            log_precision = rest[0] if rest else None
            kept.append(
                {name: storable(x[:, first:]) for name, x in cache.items()}
            )
        count = ops.sum(ops.cast(real, "int32"), axis=1)
        last = ops.maximum(count - 1, 0)[:, None, None]
        state = ops.take_along_axis(state, last, axis=1)
        # What Keras predicts cannot be `None`.
        outputs = {"caches": kept}
        if log_precision is None:
            state, _ = model.read_out(state)
        else:
            log_precision = ops.take_along_axis(log_precision, last, axis=1)
            state, log_precision = model.read_out(state, log_precision)
            outputs["log_precision"] = log_precision[:, 0]
        return {**outputs, "state": storable(state[:, 0])}


def storable(x: Tensor) -> Tensor:
    """NumPy has no bfloat16, and files no half precision of all kinds."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    return ops.cast(x, stored_dtype(dtype))


def stored_dtype(dtype: str) -> str:
    """Dtype in which NumPy holds what a layer computes in another."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
