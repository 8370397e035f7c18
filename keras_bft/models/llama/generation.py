"""Generation with a static cache of keys, values and their precisions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops
from keras import tree

from keras_bft.models.llama._prompts import check_prompts
from keras_bft.models.llama._prompts import filler_id
from keras_bft.models.llama._prompts import generated_mask
from keras_bft.models.llama._prompts import prompt_bounds
from keras_bft.models.llama._prompts import with_known_tokens
from keras_bft.models.llama.batched_training import BatchedTraining
from keras_bft.typing import Tensor

# Prompts are prefilled at lengths that are multiples of this, so that a
# compiled generation is used again for prompts of about the same length.
_PREFILL_MULTIPLE = 32


class CachedGeneration(BatchedTraining):
    """`keras_hub.models.CausalLM.generate` for a `BFTLlamaBackbone`."""

    generate_function: Any

    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        stop_token_ids: Any = "auto",
        strip_prompt: bool = False,
    ) -> Any:
        """Continues prompts, as `keras_hub.models.CausalLM.generate` does.

        Args:
            inputs: Texts, or without a preprocessor a dict of `"token_ids"`
                and `"padding_mask"`, `(B, T)`: prompts of any length, padded
                left or right to the length that is wanted.
            max_length: Largest number of tokens, the prompt included. Defaults
                to the preprocessor's `sequence_length`.
            stop_token_ids: Tokens that end a text. `"auto"` (default) takes
                all end tokens of the checkpoint; `None` stops at `max_length`.
            strip_prompt: Whether to return the continuation alone.

        Returns:
            Texts, or a dict of `"token_ids"` and `"padding_mask"`.

        Raises:
            ValueError: If a prompt is empty, too long, or has holes.
        """
        if stop_token_ids == "auto" and self.preprocessor is not None:
            stop_token_ids = tuple(self.preprocessor.tokenizer.end_token_ids)
        return super().generate(
            inputs,
            max_length=max_length,
            stop_token_ids=stop_token_ids,
            strip_prompt=strip_prompt,
        )

    def call_with_cache(
        self,
        token_ids: Tensor,
        cache: dict[str, Any],
        cache_update_index: Tensor | int,
        weight_statistics: list[Any] | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Logits of new tokens, given those in the cache.

        Args:
            token_ids: New tokens, `(B, T)`.
            cache: `"layers"`: the backbone's `make_cache()`, or what the last
                call returned; `"start"`: the first slot of each sequence,
                `(B,)`.
            cache_update_index: Slot of the first new token.
            weight_statistics: The backbone's `weight_statistics()`, which a
                loop computes once.

        Returns:
            Logits `(B, T, vocabulary_size)`, states `(B, T, D)` after the last
            norm, and the updated cache.
        """
        state, layers = self.backbone.encode_cached(
            token_ids,
            cache["start"],
            cache["layers"],
            cache_update_index,
            weight_statistics,
        )
        logits = self.backbone.token_embedding(state, reverse=True)
        return logits, state, cache | {"layers": layers}

    def generate_step(
        self,
        inputs: dict[str, Tensor],
        stop_token_ids: Sequence[int] | None = None,
    ) -> dict[str, Tensor]:
        """Continues a batch of prompts; compiled on JAX and TensorFlow."""
        padding_mask = ops.cast(inputs["padding_mask"], "bool")
        start, end = prompt_bounds(padding_mask)
        index = ops.min(end)
        batch_size, num_slots = inputs["token_ids"].shape
        token_ids = ops.where(
            padding_mask, inputs["token_ids"], filler_id(stop_token_ids)
        )

        prefill = num_slots
        if "prefill" in inputs:
            prefill = inputs["prefill"].shape[0]
        statistics = self.backbone.weight_statistics()
        _, layers = self.backbone.encode_cached(
            token_ids[:, :prefill],
            start,
            self.backbone.make_cache(batch_size, prefill),
            0,
            statistics,
        )
        room = num_slots - prefill
        layers = tree.map_structure(
            lambda x: ops.pad(
                x, [(0, 0), (0, room)] + [(0, 0)] * (len(x.shape) - 2)
            ),
            layers,
        )
        cache = {"layers": layers, "start": start}

        def following(
            prompt: Tensor, cache: dict[str, Any], index: Tensor
        ) -> tuple[Tensor, Tensor, dict[str, Any]]:
            rows = prompt.shape[0]
            last = ops.slice(prompt, (0, index - 1), (rows, 1))
            logits, states, cache = self.call_with_cache(
                last, cache, index - 1, statistics
            )
            # Beams are the rows of a sequence, one after another.
            known = index < ops.repeat(end, rows // batch_size)
            given = ops.slice(prompt, (0, index), (rows, 1))
            logits = with_known_tokens(logits[:, 0], given, known)
            return logits, states[:, 0], cache

        generated = self.sampler(
            next=following,
            prompt=token_ids,
            cache=cache,
            index=index,
            mask=padding_mask,
            stop_token_ids=stop_token_ids,
            model=self,
        )
        mask = generated_mask(generated, padding_mask, start, stop_token_ids)
        generated = ops.where(mask, generated, inputs["token_ids"])
        return {"token_ids": generated, "padding_mask": mask}

    def make_generate_function(self) -> Any:
        """The compiled generation, which checks prompts before it runs."""
        if self.generate_function is None:
            compiled = super().make_generate_function()

            def checked(
                inputs: dict[str, Any],
                stop_token_ids: Sequence[int] | None = None,
            ) -> Any:
                prompts: dict[str, Any] = check_prompts(inputs)
                mask = prompts["padding_mask"]
                ends = mask.shape[1] - np.argmax(mask[:, ::-1], axis=1)
                # All slots before the first that is generated, rounded up.
                length = -(-int(ends.min()) // _PREFILL_MULTIPLE)
                length = min(length * _PREFILL_MULTIPLE, mask.shape[1])
                prompts["token_ids"] = prompts["token_ids"].astype("int32")
                prompts["prefill"] = np.zeros((length,), "int32")
                return compiled(prompts, stop_token_ids)

            self.generate_function = checked
        return self.generate_function
