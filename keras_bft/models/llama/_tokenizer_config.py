"""Settings of a checkpoint's tokenizer, from the JSON files beside it."""

from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from keras_bft.models.llama._checkpoint_files import inside
from keras_bft.models.llama._checkpoint_files import read_settings

NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class AddedTokenSpec:
    """An added token: its text and the flags that are given for it."""

    content: str
    flags: dict[str, bool] = field(default_factory=dict)

    def key(self) -> tuple[str, frozenset[tuple[str, bool]]]:
        """Equal for equal tokens, and hashable."""
        return self.content, frozenset(self.flags.items())


@dataclass(frozen=True)
class TokenizerConfig:
    """What the JSON files of a folder say about its tokenizer.

    Attributes:
        tokenizer_class: Name of transformers' class, without `Fast`.
        legacy: Whether a SentencePiece tokenizer puts a space in front of
            every stretch between special tokens, not of the first alone.
        add_prefix_space: Whether it puts spaces in front at all.
        add_start_token: Whether an encoding starts with the start token.
        add_end_token: Whether an encoding ends with the end token.
        split_special_tokens: Whether special tokens in a text are text.
        chat_template: Jinja template of a chat, if there is one.
        named: Tokens that have a role, such as `"eos_token"`. `None` says
            that there is no such token, absence that nothing is said.
        added: Added tokens by id, or `None` if nothing is said.
        extra: Further special tokens.
        stop_ids: Ids that end a generation, of the model's configuration.
    """

    tokenizer_class: str | None
    legacy: bool
    add_prefix_space: bool
    add_start_token: bool
    add_end_token: bool
    split_special_tokens: bool
    chat_template: str | None
    named: dict[str, AddedTokenSpec | None]
    added: dict[int, AddedTokenSpec] | None
    extra: list[AddedTokenSpec]
    stop_ids: list[int]


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """Reads the settings of a folder's tokenizer.

    As in transformers, `special_tokens_map.json` and `added_tokens.json`
    count only if `tokenizer_config.json` has no `added_tokens_decoder`.

    Args:
        folder: The folder.

    Returns:
        The settings.

    Raises:
        ValueError: If a file is malformed or a value has the wrong type.
    """
    path = folder / "tokenizer_config.json"
    config = read_settings(path)
    added = None
    if config.get("added_tokens_decoder") is not None:
        added = _added_tokens(config["added_tokens_decoder"], path)
    else:
        special_map = folder / "special_tokens_map.json"
        config = {**config, **read_settings(special_map)}
    named = {
        key: None if config[key] is None else _token(config[key], key, path)
        for key in NAMED
        if key in config
    }
    extra = _extra_tokens(config, path)
    if added is None and (folder / "added_tokens.json").is_file():
        added = _legacy_added_tokens(
            folder / "added_tokens.json",
            {token.content for token in (*named.values(), *extra) if token},
        )
    tokenizer_class = config.get("tokenizer_class")
    if tokenizer_class is not None and not isinstance(tokenizer_class, str):
        _refuse("tokenizer_class", "a string", tokenizer_class, path)
    return TokenizerConfig(
        tokenizer_class=tokenizer_class
        and tokenizer_class.removesuffix("Fast"),
        legacy=_flag(config, "legacy", False, path),
        add_prefix_space=_flag(config, "add_prefix_space", True, path),
        add_start_token=_flag(config, "add_bos_token", False, path),
        add_end_token=_flag(config, "add_eos_token", False, path),
        split_special_tokens=_flag(config, "split_special_tokens", False, path),
        chat_template=_chat_template(folder, config, path),
        named=named,
        added=added,
        extra=extra,
        stop_ids=_stop_ids(folder),
    )


def _refuse(name: str, wanted: str, value: Any, path: Path) -> None:
    raise ValueError(
        f"`{name:.80}` must be {wanted}. Received: file={str(path)!r}, "
        f"{name:.80}={value!r:.200}"
    )


def _flag(config: dict[str, Any], name: str, default: bool, path: Path) -> bool:
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        _refuse(name, "true, false or null", value, path)
    return default if value is None else value


def _token(value: Any, name: str, path: Path) -> AddedTokenSpec:
    if isinstance(value, str) and value:
        return AddedTokenSpec(value)
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, str) or not content:
        _refuse(name, "a text or an object with its `content`", value, path)
    flags = {flag: value[flag] for flag in _FLAGS if flag in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        _refuse(name, f"a token whose {_FLAGS} are booleans", value, path)
    return AddedTokenSpec(str(content), flags)


def _added_tokens(value: Any, path: Path) -> dict[int, AddedTokenSpec]:
    name = "added_tokens_decoder"
    if not isinstance(value, dict) or not all(
        key.isascii() and key.isdigit() and len(key) < 10 for key in value
    ):
        _refuse(name, "an object from ids to tokens", value, path)
    tokens = {int(key): _token(value[key], name, path) for key in value}
    return dict(sorted(tokens.items()))


def _legacy_added_tokens(
    path: Path, special: set[str]
) -> dict[int, AddedTokenSpec]:
    tokens = {}
    for content, index in read_settings(path).items():
        if type(index) is not int or index < 0 or not content:
            _refuse(content, "an id from 0 on", index, path)
        is_special = content in special
        tokens[index] = AddedTokenSpec(
            content, {"special": is_special, "normalized": not is_special}
        )
    return dict(sorted(tokens.items()))


def _extra_tokens(config: dict[str, Any], path: Path) -> list[AddedTokenSpec]:
    """Collects special tokens without a standard role."""
    found: list[Any] = []
    for key in ("extra_special_tokens", "additional_special_tokens"):
        value = config.get(key) or []
        if not isinstance(value, list | dict):
            _refuse(key, "a list of tokens", value, path)
        found += value.values() if isinstance(value, dict) else value
        if found:
            break
    found += [
        value
        for key, value in config.items()
        if key.endswith("_token")
        and key not in NAMED
        and isinstance(value, str | dict)
    ]
    return [_token(value, "extra_special_tokens", path) for value in found]


def _chat_template(
    folder: Path, config: dict[str, Any], path: Path
) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return inside(file).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"The file must hold UTF-8 text ({error}). Received: "
                f"file={str(file)!r}"
            ) from error
    value = config.get("chat_template")
    if isinstance(value, list):
        named: dict[str, Any] = {}
        try:
            named = {entry["name"]: entry["template"] for entry in value}
        except (KeyError, TypeError):
            _refuse("chat_template", "named templates", value, path)
        if "default" not in named:
            _refuse("chat_template", "a list with a default", value, path)
        value = named["default"]
    if value is not None and not isinstance(value, str):
        _refuse("chat_template", "a text", value, path)
    return value


def _stop_ids(folder: Path) -> list[int]:
    """Returns the ids that end a generation, or none if nothing is said."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        value = read_settings(path).get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not ids or not all(type(i) is int and i >= 0 for i in ids):
            _refuse("eos_token_id", "an id or a list of ids", value, path)
        return ids
    return []
