"""Llama with its head: training, generation, scores, checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.models._compile_config import PortableCompilation
from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.calibration import calibrate
from keras_bft.models.llama.conversion import export_checkpoint
from keras_bft.models.llama.conversion import load_backbone
from keras_bft.models.llama.generation import CachedGeneration
from keras_bft.models.llama.preprocessor import BFTLlamaCausalLMPreprocessor
from keras_bft.models.llama.scoring import TokenScores
from keras_bft.models.llama.scoring import score_tokens


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLlamaCausalLM(PortableCompilation, CachedGeneration):
    """Llama language model that knows how reliable each token is.

    A `keras_hub.models.CausalLM`: `fit`, `generate`, samplers, presets, LoRA
    and quantization are keras-hub's. `from_preset` reads a Hugging Face folder
    of any Llama checkpoint. Import this class before
    `keras.saving.load_model` reads a `.keras` file of it: `import keras_bft`
    leaves keras-hub alone.

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

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the compile arguments and the sampler, for any backend."""
        config = super().get_compile_config()
        if config:
            config["sampler"] = keras.saving.serialize_keras_object(
                self.sampler
            )
        return config

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
