"""Llama with its head: training, generation, scores, checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops
from keras import tree

from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.calibration import calibrate
from keras_bft.models.llama.conversion import export_checkpoint
from keras_bft.models.llama.conversion import load_backbone
from keras_bft.models.llama.generation import check_prompts
from keras_bft.models.llama.generation import filler_id
from keras_bft.models.llama.generation import generated_mask
from keras_bft.models.llama.generation import prompt_bounds
from keras_bft.models.llama.generation import visible_slots
from keras_bft.models.llama.generation import with_known_tokens
from keras_bft.models.llama.preprocessor import BFTLlamaCausalLMPreprocessor
from keras_bft.models.llama.scoring import TokenScores
from keras_bft.models.llama.scoring import score_tokens
from keras_bft.typing import Tensor

# Prompts are prefilled at lengths that are multiples of this, so that a
# compiled generation is used again for prompts of about the same length.
_PREFILL_MULTIPLE = 32


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLlamaCausalLM(keras_hub.models.CausalLM):
    """Llama language model that knows how reliable each token is.

    A `keras_hub.models.CausalLM`: `fit`, `generate`, samplers, presets, LoRA
    and quantization are keras-hub's. `from_preset` reads a Hugging Face folder
    of any Llama checkpoint.

    Args:
        backbone: A `BFTLlamaBackbone`.
        preprocessor: A `BFTLlamaCausalLMPreprocessor`, or `None` for a model
            of token ids.
        **kwargs: `name` and `trainable` of a Keras model.

    Call arguments:
        inputs: Dict of `"token_ids"` and `"padding_mask"`, see
            `BFTLlamaBackbone`.

    Returns:
        Logits of the next token, `(B, T, vocabulary_size)`.

    Example:

    >>> backbone = keras_bft.models.BFTLlamaBackbone(
    ...     vocabulary_size=50, num_layers=2, num_query_heads=4,
    ...     hidden_dim=16, intermediate_dim=32, num_key_value_heads=2)
    >>> lm = keras_bft.models.BFTLlamaCausalLM(backbone)
    >>> lm.compile(sampler="greedy")
    >>> prompt = {"token_ids": np.array([[3, 7, 9, 0, 0, 0]]),
    ...           "padding_mask": np.array([[1, 1, 1, 0, 0, 0]])}
    >>> generated = lm.generate(prompt, stop_token_ids=None)
    >>> generated["token_ids"].shape
    (1, 6)
    """

    backbone_cls = BFTLlamaBackbone
    preprocessor_cls = BFTLlamaCausalLMPreprocessor
    generate_function: Any

    def __init__(
        self,
        backbone: BFTLlamaBackbone,
        preprocessor: Any = None,
        **kwargs: Any,
    ) -> None:
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        inputs = backbone.input
        states = backbone(inputs)
        logits = backbone.token_embedding(states, reverse=True)
        super().__init__(inputs=inputs, outputs=logits, **kwargs)

    @classmethod
    def from_preset(
        cls,
        preset: str | Path,
        load_weights: bool = True,
        sequence_length: int = 1024,
        **kwargs: Any,
    ) -> "BFTLlamaCausalLM":
        """Reads a Hugging Face checkpoint or a keras-hub preset.

        Args:
            preset: Folder of a Llama checkpoint (`config.json`, safetensors,
                tokenizer), `"hf://organisation/name"` for one that
                huggingface_hub downloads, or a folder that `save_to_preset`
                wrote.
            load_weights: `False` keeps random weights.
            sequence_length: Length that the preprocessor of a checkpoint pads
                or truncates to.
            **kwargs: Of a checkpoint: arguments of `BFTLlamaBackbone` that its
                `config.json` does not hold, such as `bayesian`, `strength`,
                `trainable_strength` and `dtype`; `preprocessor=None` reads no
                tokenizer. Of a preset: those of
                `keras_hub.models.CausalLM.from_preset`.

        Returns:
            The model. A converted one has filter strength 0 unless told
            otherwise: its logits are the checkpoint's.

        Raises:
            ValueError: If the checkpoint is not a Llama, or is damaged.
        """
        found = load_backbone(preset, load_weights, kwargs)
        if found is None:
            return super().from_preset(str(preset), load_weights, **kwargs)
        backbone, folder, rest = found
        if "preprocessor" not in rest:
            rest["preprocessor"] = BFTLlamaCausalLMPreprocessor.from_folder(
                folder, sequence_length=sequence_length
            )
        return cls(backbone, **rest)

    def export_to_transformers(self, path: str | Path) -> None:
        """Writes a folder that transformers loads.

        Args:
            path: The new folder.

        Raises:
            ValueError: If the filter is on (some layer's strength is not 0):
                transformers knows no filter and would compute another model.
            FileExistsError: If the folder holds a checkpoint.
        """
        export_checkpoint(self.backbone, Path(path))
        if self.preprocessor is not None:
            self.preprocessor.tokenizer.export_to_transformers(path)

    def calibrate(self, token_ids: Any, padding_mask: Any = None) -> None:
        """Sets process noise and prior from how the model moves its states.

        One pass of the standard decoder over some text. Afterwards the full
        filter costs a pretrained model little before any training. See
        `keras_bft.models.llama.calibration`.

        Args:
            token_ids: `(B, T)` ids of ordinary text.
            padding_mask: `(B, T)`, default all real.

        Raises:
            ValueError: If the model is not Bayesian.
        """
        calibrate(self.backbone, token_ids, padding_mask)

    def score(
        self, token_ids: Any, padding_mask: Any = None, batch_size: int = 8
    ) -> TokenScores:
        """Log-likelihood, precision and gain of every token.

        Args:
            token_ids: `(B, T)`.
            padding_mask: `(B, T)`, default all real.
            batch_size: Rows computed at a time.

        Returns:
            A `TokenScores` of NumPy arrays.
        """
        return score_tokens(self, token_ids, padding_mask, batch_size)

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        max_length: int | None = None,
    ) -> str:
        """Answers a conversation, with the checkpoint's own chat template.

        Args:
            messages: Dicts of `"role"` and `"content"`.
            max_length: Largest number of tokens, the conversation included.
                Defaults to the preprocessor's `sequence_length`.

        Returns:
            The answer.

        Raises:
            ValueError: If the checkpoint has no chat template, or `messages`
                do not fit it.
        """
        if self.preprocessor is None:
            raise ValueError(
                "`chat` needs a tokenizer. Received: a model with "
                "preprocessor=None"
            )
        inputs = self.preprocessor.chat_inputs(messages, max_length)
        generate = self.make_generate_function()
        outputs = {
            name: ops.convert_to_numpy(value)[0]
            for name, value in generate(
                inputs, tuple(self.preprocessor.tokenizer.end_token_ids)
            ).items()
        }
        length = int(np.sum(ops.convert_to_numpy(inputs["padding_mask"])))
        ids = outputs["token_ids"][length:]
        ids = ids[outputs["padding_mask"][length:]]
        answer: str = self.preprocessor.tokenizer.detokenize(
            ids, skip_special_tokens=True
        )
        return answer

    # === Generation ===

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

    def make_cache(self, batch_size: int, length: int) -> list[Any]:
        """Empty caches of all layers, see `BFTAttention.make_cache`."""
        return [
            layer.make_cache(batch_size, length)
            for layer in self.backbone.transformer_layers
        ]

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
            cache: `"layers"`: `make_cache()` or what the last call returned;
                `"start"`: the first slot of each sequence, `(B,)`.
            cache_update_index: Slot of the first new token.
            weight_statistics: `weight_statistics()` of each layer, which a
                loop computes once.

        Returns:
            Logits `(B, T, vocabulary_size)`, states `(B, T, D)` after the last
            norm, and the updated cache.
        """
        backbone = self.backbone
        start, caches = cache["start"], cache["layers"]
        length = token_ids.shape[1]
        visible = visible_slots(
            start, cache_update_index, length, caches[0]["key"].shape[1]
        )
        positions = (
            ops.cast(cache_update_index, "int32")
            + ops.arange(length, dtype="int32")
            - start[:, None]
        )
        shared = {
            "attention_mask": visible,
            "rotation": backbone.rotary_embedding(ops.maximum(positions, 0)),
            "cache_index": cache_update_index,
        }
        state = backbone.token_embedding(token_ids)
        log_precision = None
        if backbone.prior is not None:
            log_precision = backbone.prior(state)
        updated = []
        for index, layer in enumerate(backbone.transformer_layers):
            options = {"cache": caches[index], **shared}
            if log_precision is None:
                state, new = layer(state, **options)
            else:
                if weight_statistics is not None:
                    options["weight_statistics"] = weight_statistics[index]
                state, log_precision, new = layer(
                    state, log_precision, **options
                )
            updated.append(new)
        state, _ = backbone.final_norm(state)
        logits = backbone.token_embedding(state, reverse=True)
        return logits, state, {"layers": updated, "start": start}

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
        statistics = [
            layer.weight_statistics()
            for layer in self.backbone.transformer_layers
        ]
        cache = {
            "layers": self.make_cache(batch_size, prefill),
            "start": start,
        }
        _, _, cache = self.call_with_cache(
            token_ids[:, :prefill], cache, 0, statistics
        )
        room = num_slots - prefill
        cache["layers"] = tree.map_structure(
            lambda x: ops.pad(
                x, [(0, 0), (0, room)] + [(0, 0)] * (len(x.shape) - 2)
            ),
            cache["layers"],
        )

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
