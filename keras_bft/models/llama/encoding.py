"""States and precisions of a decoder's tokens, with a cache and without."""

from typing import Any

from keras import ops

from keras_bft.models.llama.lora import LoraBackbone
from keras_bft.typing import Tensor


class EncodingBackbone(LoraBackbone):
    """The part of a backbone that runs its layers.

    A subclass makes the layers.
    """

    token_embedding: Any
    segment_mask: Any
    rotary_embedding: Any
    final_norm: Any

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """States after the last norm, and the precision before it.

        Args:
            token_ids: `(B, T)`.
            padding_mask: As in the call.

        Returns:
            States `(B, T, D)`, and log-precisions `(B, T, D)` or, with token
            precision, `(B, T, 1)`, float32; `None` unless Bayesian.
        """
        visible, positions = self.segment_mask(padding_mask)
        masks = {
            "attention_mask": visible,
            "rotation": self.rotary_embedding(positions),
        }
        state, log_precision, _ = self._filter(token_ids, masks)
        return state, log_precision

    def encode_cached(
        self,
        token_ids: Tensor,
        start: Tensor,
        caches: list[Any],
        cache_index: Tensor | int,
        weight_statistics: list[Any] | None = None,
    ) -> tuple[Tensor, list[Any]]:
        """States of new tokens, given the keys of those before.

        Args:
            token_ids: `(B, T)`.
            start: First slot of each sequence in the cache, `(B,)`.
            caches: `make_cache()`, or what the last call returned.
            cache_index: Slot of the first new token.
            weight_statistics: `weight_statistics()`, if at hand.

        Returns:
            States `(B, T, D)` after the last norm, and the updated caches.
        """
        slots = ops.arange(caches[0]["key"].shape[1], dtype="int32")
        queries = ops.cast(cache_index, "int32") + ops.arange(
            token_ids.shape[1], dtype="int32"
        )
        masks = {
            "attention_mask": ops.logical_and(
                slots <= queries[None, :, None], slots >= start[:, None, None]
            ),
            "rotation": self.rotary_embedding(
                ops.maximum(queries - start[:, None], 0)
            ),
            "cache_index": cache_index,
        }
        state, _, caches = self._filter(
            token_ids, masks, caches, weight_statistics
        )
        return state, caches

    def make_cache(self, batch_size: int, length: int) -> list[Any]:
        """Empty caches of all layers, see `BFTAttention.make_cache`."""
        return [
            layer.make_cache(batch_size, length)
            for layer in self.transformer_layers
        ]

    def weight_statistics(self) -> list[Any]:
        """What the filter reads of each layer's weights, for a decoder."""
        return [layer.weight_statistics() for layer in self.transformer_layers]

    def _filter(
        self,
        token_ids: Tensor,
        masks: dict[str, Any],
        caches: list[Any] | None = None,
        weight_statistics: list[Any] | None = None,
    ) -> tuple[Tensor, Tensor | None, list[Any]]:
        state = self.token_embedding(token_ids)
        log_precision = None if self.prior is None else self.prior(state)
        updated = []
        for index, layer in enumerate(self.transformer_layers):
            # What Keras does around `call` takes longer than the layer does
            # for one token, where no graph is compiled.
            step = layer if caches is None else layer.call
            options = dict(masks)
            if caches is not None:
                options["cache"] = caches[index]
            if log_precision is None:
                outputs = step(state, **options)
                state = outputs if caches is None else outputs[0]
            else:
                if weight_statistics is not None:
                    options["weight_statistics"] = weight_statistics[index]
                outputs = step(state, log_precision, **options)
                state, log_precision = outputs[:2]
            if caches is not None:
                updated.append(outputs[-1])
        return self.final_norm(state)[0], log_precision, updated
