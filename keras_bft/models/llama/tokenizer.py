"""The tokenizer of a Llama checkpoint, as a keras-hub tokenizer."""

import json
import os
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_bft.models.llama._fast_tokenizer import FastTokenizer
from keras_bft.models.llama._tokenizer_config import NAMED
from keras_bft.models.llama._tokenizer_files import tokenizer_settings
from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.chat_template import render_chat


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLlamaTokenizer(FastTokenizer):
    """Tokenizer with the ids that transformers gives a Llama checkpoint.

    Reads both kinds of tokenizer that Llama checkpoints have, SentencePiece
    (Llama 1 and 2, TinyLlama) and byte-level BPE (Llama 3, SmolLM2). It runs
    in Python on every backend; in a graph, as of `tf.data`, use
    `BFTLlamaCausalLMPreprocessor`, which calls back to Python.

    Start and end tokens are not added: the preprocessor does that. Special
    tokens that stand in a text become their ids.

    Args:
        tokenizer_json: The tokenizer as JSON of the package `tokenizers`. It
            is not part of `get_config()` but an asset, `tokenizer.json`, and
            may be left out if `load_assets()` follows. Defaults to `None`.
        special_tokens: Tokens that have a role: `"eos_token"`, which has to
            be there, and any of `"bos_token"`, `"pad_token"`, `"unk_token"`,
            `"sep_token"`, `"cls_token"` and `"mask_token"`. Without a
            `"pad_token"` the end token pads.
        end_tokens: Further tokens that end a generation. Defaults to none.
        add_start_token: Whether the checkpoint's encodings start with the
            start token. Defaults to `False`.
        add_end_token: Whether they end with the end token. Defaults to
            `False`.
        chat_template: Jinja template of a chat. Defaults to `None`.
        split_special_tokens: Whether special tokens that stand in a text are
            read as text. Defaults to `False`.
        **kwargs: Arguments of `keras_hub.tokenizers.Tokenizer`.

    Call arguments:
        inputs: A text, or a list, NumPy array or eager TensorFlow tensor of
            texts.

    Returns:
        Ids as a list, or a list of lists for several texts.

    Raises:
        ValueError: If an argument is outside its domain.

    Examples:

    >>> import tokenizers
    >>> bpe = tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    >>> bpe = tokenizers.Tokenizer(bpe)
    >>> _ = bpe.add_special_tokens(["<end>"])
    >>> tokenizer = BFTLlamaTokenizer(
    ...     bpe.to_str(), special_tokens={"eos_token": "<end>"}
    ... )
    >>> tokenizer(["aab", "b<end>"])
    [[0, 2], [1, 3]]
    """

    backbone_cls = BFTLlamaBackbone

    def __init__(
        self,
        tokenizer_json: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        end_tokens: Sequence[str] = (),
        add_start_token: bool = False,
        add_end_token: bool = False,
        chat_template: str | None = None,
        split_special_tokens: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(split_special_tokens=split_special_tokens, **kwargs)
        tokens = dict(special_tokens or {})
        if "eos_token" not in tokens or not set(tokens) <= set(NAMED):
            raise ValueError(
                '`special_tokens` must have an "eos_token", and may have '
                f"others of {NAMED}. Received: "
                f"special_tokens={special_tokens!s:.200}"
            )
        if add_start_token and "bos_token" not in tokens:
            raise ValueError(
                '`add_start_token=True` needs a "bos_token" among the special '
                f"tokens. Received: special_tokens={special_tokens!s:.200}"
            )
        self.special_tokens_map = tokens
        self.end_tokens = list(end_tokens)
        self.add_start_token = add_start_token
        self.add_end_token = add_end_token
        self.chat_template = chat_template
        if tokenizer_json is not None:
            self.set_backend(tokenizer_json, "tokenizer_json")

    @classmethod
    def from_folder(
        cls,
        path: str | os.PathLike[str],
        as_written: bool = False,
        **kwargs: Any,
    ) -> "BFTLlamaTokenizer":
        """Reads the tokenizer of a Hugging Face folder.

        The ids are those of `AutoTokenizer` of transformers 5. It reads
        `tokenizer.json` as it stands unless `tokenizer_config.json` has the
        class `LlamaTokenizer` and the file is not byte-level: then it takes
        vocabulary and merges alone from it, and puts the space of
        SentencePiece in front of a text's first word only, if there is none
        yet and unless `legacy` is true. transformers 4 took the file as it
        stood, which mostly had a space in front of every stretch between
        special tokens and of a leading space.

        `tokenizer_config.json`, `special_tokens_map.json`,
        `added_tokens.json` and `chat_template.jinja` say the rest. Whether
        encodings have a start and an end token follows from the
        post-processor in `tokenizer.json`, or for a `tokenizer.model` from
        `add_bos_token` and `add_eos_token`, both false if not given. A
        generation ends at the tokenizer's end token and at each
        `eos_token_id` of `generation_config.json` or else `config.json`.

        Args:
            path: The folder.
            as_written: Whether `tokenizer.json` is used as it stands for
                every class, as in transformers 4. Defaults to `False`.
            **kwargs: Arguments of the constructor to use instead of what the
                folder says, such as `chat_template`. Of `special_tokens` only
                those that differ need to be given.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If the folder, or its tokenizer, is not there.
            ValueError: If a file is malformed, or none names an end token.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise FileNotFoundError(
                "`path` must be a folder that exists. Received: "
                f"path={str(path)!r}"
            )
        settings = tokenizer_settings(
            folder, as_written, kwargs.pop("special_tokens", None)
        )
        return cls(**{**settings, **kwargs})

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = False,
    ) -> str:
        """Writes a chat as the text the checkpoint was trained on.

        If the template writes the start token itself, as that of Llama 3
        does, preprocess the text with `add_start_token=False`.

        Args:
            messages: As in `keras_bft.models.llama.chat_template.render_chat`.
            add_generation_prompt: Whether to end with the beginning of an
                answer. Defaults to `False`.

        Returns:
            The text.
        """
        return render_chat(
            self.chat_template,
            messages,
            self.special_tokens_map,
            add_generation_prompt,
        )

    @property
    def start_token_id(self) -> int | None:
        """Id of the start token, `None` if the checkpoint has none."""
        token = self.special_tokens_map.get("bos_token")
        return None if token is None else self.token_to_id(token)

    @property
    def end_token_id(self) -> int:
        """Id of the token that ends a text."""
        return self.token_to_id(self.special_tokens_map["eos_token"])

    @property
    def end_token_ids(self) -> list[int]:
        """Ids that end a generation, `end_token_id` first."""
        ids = [self.token_to_id(token) for token in self.end_tokens]
        return list(dict.fromkeys([self.end_token_id, *ids]))

    @property
    def pad_token_id(self) -> int:
        """Id of the padding, `end_token_id` if the checkpoint has none."""
        tokens = self.special_tokens_map
        return self.token_to_id(tokens.get("pad_token", tokens["eos_token"]))

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`.

        transformers reads them as they stand and gives the same ids. It reads
        `end_tokens` from the configuration of the model, not from here.

        Args:
            path: A folder that exists.
        """
        self.save_assets(str(path))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self.special_tokens_map,
            "split_special_tokens": self.split_special_tokens,
            "clean_up_tokenization_spaces": False,
        }
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        text = json.dumps(config, indent=2, ensure_ascii=False)
        Path(path, "tokenizer_config.json").write_text(text, encoding="utf-8")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "special_tokens": dict(self.special_tokens_map),
            "end_tokens": list(self.end_tokens),
            "add_start_token": self.add_start_token,
            "add_end_token": self.add_end_token,
            "chat_template": self.chat_template,
        }

    def check_backend(self, backend: Any, source: str) -> None:
        for token in (*self.special_tokens_map.values(), *self.end_tokens):
            if backend.token_to_id(token) is None:
                raise ValueError(
                    "Every special token must be in the vocabulary. Received: "
                    f"{source} without {token!r:.80}"
                )
