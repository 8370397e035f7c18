"""Texts and examples as the inputs of a Llama model."""

import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from keras_bft.models.llama._rows import check_length
from keras_bft.models.llama._rows import pad_rows
from keras_bft.models.llama._rows import row_weights
from keras_bft.models.llama._rows import run_python
from keras_bft.models.llama._rows import training_rows
from keras_bft.models.llama._texts import read_texts
from keras_bft.models.llama._texts import to_array
from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer

_FIELDS = ("prompts", "responses")
_DTYPES = ["int32", "bool", "int32", "float32"]


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLlamaCausalLMPreprocessor(keras_hub.models.CausalLMPreprocessor):
    """Turns texts, or prompts with responses, into rows of ids.

    A row is the start token, the ids of the text and the end token, padded on
    the right to `sequence_length`. Which of the two tokens there are follows
    from the checkpoint. Most have no end token: pass `add_end_token=True` to
    teach a model where to stop.

    Of `{"prompts": ..., "responses": ...}` a row holds the ids of the prompt
    and then those of the response, each tokenised on its own, so that the
    border between them is the same in training and in generation. The loss
    has weight one on the response and the end token, zero on the prompt.

    A text that is too long is cut at its end, and the end token still stands
    behind it, as in keras-hub. If that cuts off a whole response it is an
    error, unless `truncate=True`: then all weights of the row are zero.

    Args:
        tokenizer: A `BFTLlamaTokenizer`.
        sequence_length: Length of the rows. At least 2. Defaults to `1024`.
        add_start_token: Whether rows start with the start token. Defaults to
            `None`, what the tokenizer says.
        add_end_token: Whether rows for training end with the end token.
            Defaults to `None`, what the tokenizer says.
        truncate: Whether a response may be cut off as a whole, and a prompt
            for generation at its end. Defaults to `False`.
        **kwargs: Arguments of `keras_hub.models.CausalLMPreprocessor`.

    Call arguments:
        x: A text, several texts (a list, NumPy array or TensorFlow tensor),
            or a dictionary of such with the keys `"prompts"` and
            `"responses"`. In a TensorFlow graph, as of `tf.data`, too.
        y: Must be `None`; the targets follow from `x`.
        sample_weight: A weight for each text. Defaults to `None`, ones.
        sequence_length: Length of these rows. Defaults to `None`, that of the
            layer.

    Returns:
        `(x, y, sample_weight)`: the dictionary `x` with `"token_ids"` and
        `"padding_mask"`, the next token at each place, and its float weight.
        Each is `(B, T)`, or `(T,)` for a text by itself.

    Raises:
        ValueError: If an argument is outside its domain, or a row would lose
            its response or prompt.

    Examples:

    >>> import tokenizers
    >>> bpe = tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    >>> bpe = tokenizers.Tokenizer(bpe)
    >>> _ = bpe.add_special_tokens(["<end>"])
    >>> preprocessor = BFTLlamaCausalLMPreprocessor(
    ...     BFTLlamaTokenizer(bpe.to_str(), {"eos_token": "<end>"}),
    ...     sequence_length=6,
    ...     add_end_token=True,
    ... )
    >>> x, y, weight = preprocessor({"prompts": ["aa"], "responses": ["bab"]})
    >>> print(keras.ops.convert_to_numpy(x["token_ids"]))
    [[0 0 1 2 3 3]]
    >>> print(keras.ops.convert_to_numpy(y))
    [[0 1 2 3 3 3]]
    >>> print(keras.ops.convert_to_numpy(weight))
    [[0. 1. 1. 1. 0. 0.]]
    """

    backbone_cls = BFTLlamaBackbone
    tokenizer_cls = BFTLlamaTokenizer

    def __init__(
        self,
        tokenizer: BFTLlamaTokenizer,
        sequence_length: int = 1024,
        add_start_token: bool | None = None,
        add_end_token: bool | None = None,
        truncate: bool = False,
        **kwargs: Any,
    ) -> None:
        if not isinstance(tokenizer, BFTLlamaTokenizer):
            raise ValueError(
                "`tokenizer` must be a `BFTLlamaTokenizer`. Received: "
                f"tokenizer={tokenizer!r}"
            )
        if add_start_token is None:
            add_start_token = tokenizer.add_start_token
        if add_end_token is None:
            add_end_token = tokenizer.add_end_token
        if add_start_token and "bos_token" not in tokenizer.special_tokens_map:
            raise ValueError(
                "The tokenizer has no start token. Received: "
                f"add_start_token={add_start_token}"
            )
        super().__init__(
            tokenizer,
            sequence_length=check_length(sequence_length),
            add_start_token=add_start_token,
            add_end_token=add_end_token,
            **kwargs,
        )
        self.truncate = truncate
        self.built = True

    @classmethod
    def from_folder(
        cls,
        path: str | os.PathLike[str],
        sequence_length: int = 1024,
        **kwargs: Any,
    ) -> "BFTLlamaCausalLMPreprocessor":
        """Makes a preprocessor with the tokenizer of a Hugging Face folder.

        Args:
            path: The folder, see `BFTLlamaTokenizer.from_folder`.
            sequence_length: Length of the rows. Defaults to `1024`.
            **kwargs: Other arguments of the constructor.

        Returns:
            The preprocessor.
        """
        tokenizer = BFTLlamaTokenizer.from_folder(path)
        return cls(tokenizer, sequence_length=sequence_length, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        self.built = True

    def call(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        sequence_length: int | None = None,
    ) -> tuple[dict[str, Any], Any, Any]:
        if y is not None:
            raise ValueError(
                "The targets follow from `x`: they are its next tokens. "
                f"Received: y={y!r:.200}"
            )
        length = self._length(sequence_length)

        def pack(*fields: Any) -> tuple[np.ndarray, ...]:
            return self._pack(list(fields[:-1]), fields[-1], length)

        weight = [] if sample_weight is None else sample_weight
        ids, mask, y, weight = run_python(
            pack, [*self._fields(x), weight], _DTYPES, length
        )
        return {"token_ids": ids, "padding_mask": mask}, y, weight

    def generate_preprocess(
        self, x: Any, sequence_length: int | None = None
    ) -> dict[str, Any]:
        """Turns prompts into rows for generation, without an end token.

        Args:
            x: A text, several texts, or `{"prompts": texts}`.
            sequence_length: Length of the rows, prompt and answer together.
                Defaults to `None`, that of the layer.

        Returns:
            A dictionary with `"token_ids"` and `"padding_mask"`.

        Raises:
            ValueError: If a prompt is longer, unless `truncate=True`.
        """
        length = self._length(sequence_length)
        fields = self._fields(x)
        if len(fields) > 1:
            raise ValueError(
                "A generation starts from prompts alone. Received: "
                f"x={x!r:.200}"
            )

        def pack(texts: Any) -> tuple[np.ndarray, ...]:
            texts, single = read_texts(texts, "x")
            rows = [self._start + ids for ids in self.tokenizer.tokenize(texts)]
            ids, mask = self._prompts(rows, length)
            return (ids[0], mask[0]) if single else (ids, mask)

        ids, mask = run_python(pack, fields, _DTYPES[:2], length)
        return {"token_ids": ids, "padding_mask": mask}

    def chat_inputs(
        self,
        messages: Sequence[Mapping[str, Any]],
        sequence_length: int | None = None,
    ) -> dict[str, Any]:
        """Turns a chat into a batch of one row for the generation of an answer.

        As in transformers, the row starts with the start token only if the
        chat template writes it.

        Args:
            messages: As in `BFTLlamaTokenizer.render_chat`.
            sequence_length: Length of the row, chat and answer together.
                Defaults to `None`, that of the layer.

        Returns:
            A dictionary with `"token_ids"` and `"padding_mask"`, `(1, T)`.

        Raises:
            ValueError: If there is no chat template or `messages` do not fit
                it, or the chat is longer, unless `truncate=True`.
        """
        length = self._length(sequence_length)
        text = self.tokenizer.render_chat(messages, add_generation_prompt=True)
        ids, mask = self._prompts([self.tokenizer.tokenize(text)], length)
        return {
            "token_ids": keras.ops.convert_to_tensor(ids),
            "padding_mask": keras.ops.convert_to_tensor(mask),
        }

    def generate_postprocess(self, x: Mapping[str, Any]) -> str | list[str]:
        """Turns generated rows into texts, without special tokens.

        Args:
            x: A dictionary with `"token_ids"` and `"padding_mask"`, both
                `(B, T)` or `(T,)`.

        Returns:
            The texts, or one text for one dimension.
        """
        ids = to_array(x["token_ids"])
        mask = to_array(x["padding_mask"])
        pairs = zip(np.atleast_2d(ids), np.atleast_2d(mask), strict=True)
        rows = [row[keep.astype(bool)] for row, keep in pairs]
        texts = [
            self.tokenizer.detokenize(row, skip_special_tokens=True)
            for row in rows
        ]
        return texts[0] if ids.ndim == 1 else texts

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "truncate": self.truncate}

    def _length(self, sequence_length: int | None) -> int:
        if sequence_length is None:
            return self.sequence_length
        return check_length(sequence_length)

    def _prompts(
        self, rows: list[list[int]], length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        longest = max(map(len, rows), default=0)
        if longest > length and not self.truncate:
            raise ValueError(
                "A prompt must fit in `sequence_length`, unless "
                f"`truncate=True`. Received: sequence_length={length} and a "
                f"prompt of {longest} tokens"
            )
        rows = [row[:length] for row in rows]
        return pad_rows(rows, length, self.tokenizer.pad_token_id)

    @property
    def _start(self) -> list[int]:
        if not self.add_start_token:
            return []
        return [self.tokenizer.start_token_id]

    def _fields(self, x: Any) -> list[Any]:
        """Returns the texts, or the prompts and the responses."""
        if not isinstance(x, Mapping):
            return [x]
        if not (set(x) <= set(_FIELDS) and "prompts" in x):
            raise ValueError(
                f"`x` must be texts or a dictionary with the keys {_FIELDS}. "
                f"Received: a dictionary with the keys {sorted(x)}"
            )
        return [x[key] for key in _FIELDS if key in x]

    def _pack(
        self, fields: list[Any], sample_weight: Any, length: int
    ) -> tuple[np.ndarray, ...]:
        parts = [read_texts(field, "x") for field in fields]
        counts = [len(texts) for texts, _ in parts]
        single = parts[0][1]
        if any(part[1] != single for part in parts) or len(set(counts)) > 1:
            raise ValueError(
                "There must be as many responses as prompts. Received: "
                f"{counts[0]} prompts and {counts[-1]} responses"
            )
        packed = training_rows(
            [self.tokenizer.tokenize(texts) for texts, _ in parts],
            row_weights(sample_weight, counts[0]),
            length,
            start=self._start,
            end=[self.tokenizer.end_token_id] if self.add_end_token else [],
            pad_id=self.tokenizer.pad_token_id,
            truncate=self.truncate,
        )
        return tuple(part[0] if single else part for part in packed)
