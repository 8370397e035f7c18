"""A tokenizer of the package `tokenizers` as one of keras-hub."""

from pathlib import Path
from typing import Any

import keras_hub

from keras_bft._extras import import_extra
from keras_bft.models.llama._texts import read_ids
from keras_bft.models.llama._texts import read_texts

ASSET = "tokenizer.json"


def parse_tokenizer(text: str, source: str) -> Any:
    """Builds a `tokenizers.Tokenizer` from its JSON.

    Args:
        text: The JSON.
        source: Where it is from, for the errors.

    Returns:
        The tokenizer, which neither truncates nor pads.

    Raises:
        ValueError: If the JSON is no tokenizer, or its ids have holes.
    """
    tokenizers = import_extra("tokenizers", "llm")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Fails if the post-processor adds tokens that it does not list, or a
        # step can't cope with a text.
        for sample in ("", "Ab 1\u00e9\n"):
            tokenizer.encode(sample)
    except BaseException as error:
        # The package has no error class of its own, and a panic of its Rust
        # code is no `Exception`.
        is_panic = type(error).__name__ == "PanicException"
        if not (is_panic or isinstance(error, Exception)):
            raise
        raise ValueError(
            "The tokenizer must be one that the package `tokenizers` reads "
            f"({error!s:.300}). Received: {source}"
        ) from error
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    there = set(ids)
    if not ids or there != set(range(len(ids))):
        hole = next((i for i in range(len(ids)) if i not in there), 0)
        raise ValueError(
            "Every id from 0 on must have one token, but there is none, or "
            f"more than one token for another, at {hole}. Received: {source} "
            f"with {len(ids)} tokens and ids up to {max(ids, default=None)}"
        )
    return tokenizer


class FastTokenizer(keras_hub.tokenizers.Tokenizer):
    """Texts to ids and back; the vocabulary is an asset.

    Args:
        split_special_tokens: Whether special tokens that stand in a text are
            read as text. Defaults to `False`.
        **kwargs: Arguments of `keras_hub.tokenizers.Tokenizer`.
    """

    def __init__(
        self, split_special_tokens: bool = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("dtype", "int32")
        super().__init__(**kwargs)
        self.split_special_tokens = split_special_tokens
        self.file_assets = [ASSET]
        self._backend: Any = None

    def tokenize(self, inputs: Any) -> list[int] | list[list[int]]:
        """Turns texts into ids, without adding start or end tokens.

        Args:
            inputs: As in the call.

        Returns:
            Ids as a list, or a list of lists for several texts.
        """
        texts, single = read_texts(inputs, "inputs")
        encodings = self._ready().encode_batch(texts, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        return rows[0] if single else rows

    def detokenize(
        self, inputs: Any, skip_special_tokens: bool = False
    ) -> str | list[str]:
        """Turns ids into texts, as `decode` of transformers does.

        Args:
            inputs: Ids as a list, a list of lists, an array or a tensor.
            skip_special_tokens: Whether to leave out all special tokens of
                the checkpoint. Defaults to `False`.

        Returns:
            A text, or a list of texts for several rows.
        """
        rows, single = read_ids(inputs, self.vocabulary_size())
        texts = self._ready().decode_batch(
            rows, skip_special_tokens=skip_special_tokens
        )
        return texts[0] if single else texts

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.tokenize(inputs)

    def get_vocabulary(self) -> list[str]:
        """Returns all tokens by id, added ones included."""
        vocabulary = self._ready().get_vocab(with_added_tokens=True)
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def vocabulary_size(self) -> int:
        """Returns the number of tokens, added ones included."""
        return self._ready().get_vocab_size(with_added_tokens=True)

    def id_to_token(self, id: int) -> str:
        """Returns the token that has an id."""
        token = self._ready().id_to_token(id) if id >= 0 else None
        if token is None:
            raise ValueError(
                f"`id` must be from 0 to {self.vocabulary_size() - 1}. "
                f"Received: id={id}"
            )
        return token

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token."""
        index = self._ready().token_to_id(token)
        if index is None:
            raise ValueError(
                f"`token` must be in the vocabulary. Received: token={token!r}"
            )
        return index

    @property
    def special_tokens(self) -> list[str]:
        """Tokens that `skip_special_tokens` leaves out, by id."""
        return [self.id_to_token(index) for index in self.special_token_ids]

    @property
    def special_token_ids(self) -> list[int]:
        """Ids that `skip_special_tokens` leaves out."""
        added = self._ready().get_added_tokens_decoder()
        return sorted(index for index in added if added[index].special)

    def save_assets(self, dir_path: str) -> None:
        path = Path(dir_path, ASSET)
        path.write_text(self._ready().to_str(), encoding="utf-8")

    def load_assets(self, dir_path: str) -> None:
        path = Path(dir_path, ASSET)
        if not path.is_file():
            raise FileNotFoundError(
                f"The saved tokenizer lacks its file {ASSET}. Received: "
                f"dir_path={str(dir_path)!r}"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"The file must hold UTF-8 text ({error}). Received: "
                f"file={str(path)!r}"
            ) from error
        self.set_backend(text, f"file={str(path)!r}")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "split_special_tokens": self.split_special_tokens,
        }

    def set_backend(self, text: str, source: str) -> None:
        """Sets the tokenizer.

        Args:
            text: JSON of the package `tokenizers`.
            source: Where it is from, for the errors.

        Raises:
            ValueError: If it is malformed.
        """
        backend = parse_tokenizer(text, source)
        self.check_backend(backend, source)
        # It is no part of the JSON.
        backend.encode_special_tokens = self.split_special_tokens
        self._backend = backend

    def check_backend(self, backend: Any, source: str) -> None:
        """Raises an error if a tokenizer does not fit the settings."""

    def _ready(self) -> Any:
        if self._backend is None:
            raise ValueError(
                "The tokenizer has no vocabulary yet. Pass `tokenizer_json` "
                "or call `load_assets()`. Received: tokenizer_json=None"
            )
        return self._backend
