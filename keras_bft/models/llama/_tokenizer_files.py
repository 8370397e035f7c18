"""Building the tokenizer of a checkpoint's folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bft._extras import import_extra
from keras_bft._json_files import read_json
from keras_bft.models.llama._checkpoint_files import inside
from keras_bft.models.llama._fast_tokenizer import parse_tokenizer
from keras_bft.models.llama._llama_bpe import from_merges
from keras_bft.models.llama._llama_bpe import from_pieces
from keras_bft.models.llama._llama_bpe import model_tokens
from keras_bft.models.llama._sentencepiece_model import read_pieces
from keras_bft.models.llama._tokenizer_config import NAMED
from keras_bft.models.llama._tokenizer_config import AddedTokenSpec
from keras_bft.models.llama._tokenizer_config import TokenizerConfig
from keras_bft.models.llama._tokenizer_config import read_tokenizer_config

# Three times the largest in use, of 260,000 tokens.
MAX_TOKENIZER_BYTES = 100_000_000

_DEFAULTS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def tokenizer_settings(
    folder: Path,
    as_written: bool = False,
    special_tokens: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Reads `tokenizer.json`, or else `tokenizer.model`, and its settings.

    Args:
        folder: The folder.
        as_written: Whether `tokenizer.json` is used as it stands.
        special_tokens: Tokens to use instead of those the folder names.

    Returns:
        Arguments of `BFTLlamaTokenizer`.

    Raises:
        FileNotFoundError: If the folder has neither file.
        ValueError: If a file is malformed, or none names an end token.
    """
    config = read_tokenizer_config(folder)
    named = {key: value for key, value in config.named.items() if value}
    extra = list(config.extra)
    path = folder / "tokenizer.json"
    if path.is_file():
        tokenizer, added, is_llama = _from_json(path, config, as_written)
    else:
        path = folder / "tokenizer.model"
        if not path.is_file():
            raise FileNotFoundError(
                "The folder must hold tokenizer.json or tokenizer.model. "
                f"Received: path={str(folder)!r}"
            )
        model = read_pieces(inside(path))
        tokenizer, added = from_pieces(model, config), {}
        is_llama = True
        extra += model_tokens(model)
    if is_llama:
        for key, content in _DEFAULTS.items():
            if key not in config.named:
                named[key] = AddedTokenSpec(content)
    added = added if config.added is None else config.added
    _add_tokens(tokenizer, added, named, extra, path)
    special = {key: named[key].content for key in NAMED if key in named}
    special |= special_tokens or {}
    start = config.add_start_token and "bos_token" in special
    end = config.add_end_token and "eos_token" in special
    if path.name == "tokenizer.json":
        start, end = _template_ends(tokenizer, special, path)
    elif start or end:
        _set_template(tokenizer, special, start, end)
    end_tokens = _end_tokens(tokenizer, config.stop_ids, folder)
    if end_tokens:
        special.setdefault("eos_token", end_tokens[0])
    return {
        "tokenizer_json": tokenizer.to_str(),
        "special_tokens": special,
        "end_tokens": end_tokens,
        "add_start_token": start,
        "add_end_token": end,
        "chat_template": config.chat_template,
        "split_special_tokens": config.split_special_tokens,
    }


def _end_tokens(tokenizer: Any, ids: list[int], folder: Path) -> list[str]:
    size = tokenizer.get_vocab_size()
    if any(index >= size for index in ids):
        raise ValueError(
            "`eos_token_id` of the model's configuration must be ids of the "
            f"tokenizer, from 0 to {size - 1}. Received: "
            f"path={str(folder)!r}, eos_token_id={ids!r:.200}"
        )
    return [tokenizer.id_to_token(index) for index in ids]


def _from_json(
    path: Path, config: TokenizerConfig, as_written: bool
) -> tuple[Any, dict[int, AddedTokenSpec], bool]:
    content = read_json(inside(path), MAX_TOKENIZER_BYTES)
    text = json.dumps(content, ensure_ascii=False)
    tokenizer = parse_tokenizer(text, f"file={str(path)!r}")
    added = {}
    for entry in content.get("added_tokens") or []:
        index = tokenizer.token_to_id(entry["content"])
        if index != entry["id"]:
            raise ValueError(
                f"The added token {entry['content']!r:.80} stands at "
                f"{entry['id']}, but its place is {index}. Received: "
                f"file={str(path)!r}"
            )
        flags = {k: v for k, v in entry.items() if k not in ("id", "content")}
        added[index] = AddedTokenSpec(entry["content"], flags)
    is_llama = config.tokenizer_class == "LlamaTokenizer" and (
        '"ByteLevel"' not in text
    )
    if is_llama and not as_written:
        model = content["model"]
        if model.get("type", "BPE") != "BPE":
            raise ValueError(
                'A Llama tokenizer\'s model must have the type "BPE". '
                f"Received: file={str(path)!r}, type={model.get('type')!r}"
            )
        merges = [
            tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair)
            for pair in model.get("merges", [])
        ]
        template = tokenizer.post_processor
        tokenizer = from_merges(model["vocab"], merges, config)
        if template is not None:
            tokenizer.post_processor = template
    return tokenizer, added, is_llama


def _add_tokens(
    tokenizer: Any,
    added: dict[int, AddedTokenSpec],
    named: dict[str, AddedTokenSpec],
    extra: list[AddedTokenSpec],
    path: Path,
) -> None:
    """Adds tokens in the order of transformers, which decides on new ids."""
    AddedToken = import_extra("tokenizers", "llm").AddedToken
    roles = {token.content for token in named.values()}
    special = [named[key] for key in NAMED if key in named] + extra
    specials = {token.key() for token in special}
    tokens = []
    for token in (*added.values(), *special):
        flags = dict(token.flags)
        if token.key() in specials:
            flags.setdefault("special", True)
        if token.content in roles:
            flags["special"] = True
        tokens.append(AddedToken(token.content, **flags))
    # At once: each call looks at all tokens there are.
    tokenizer.add_tokens(tokens)
    for index, token in added.items():
        if tokenizer.token_to_id(token.content) != index:
            raise ValueError(
                f"The added token {token.content!r:.80} is said to have the id "
                f"{index}, but {path.name} gives it "
                f"{tokenizer.token_to_id(token.content)}. Received: "
                f"path={str(path.parent)!r}"
            )


def _template_ends(
    tokenizer: Any, special: dict[str, str], path: Path
) -> tuple[bool, bool]:
    """Returns whether the post-processor adds the start and end tokens."""
    with_ends = tokenizer.encode("").tokens
    plain = tokenizer.encode("", add_special_tokens=False).tokens
    bos, eos = special.get("bos_token"), special.get("eos_token")
    for start, end in ((0, 0), (1, 0), (0, 1), (1, 1)):
        if with_ends == [bos] * start + plain + [eos] * end:
            return bool(start), bool(end)
    raise ValueError(
        "The post-processor may add the start token in front and the end "
        f"token behind, which are {bos!r:.80} and {eos!r:.80}. Received: "
        f"file={str(path)!r}, which adds {with_ends!r:.200}"
    )


def _set_template(
    tokenizer: Any, special: dict[str, str], start: bool, end: bool
) -> None:
    """Makes the post-processor add the start and end tokens."""
    processors = import_extra("tokenizers.processors", "llm")
    front = [special["bos_token"]] if start else []
    back = [special["eos_token"]] if end else []
    ids = {token: tokenizer.token_to_id(token) for token in front + back}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*front, "$A", *back], special_tokens=list(ids.items())
    )
