"""Llama's SentencePiece tokenizer as a BPE of the package `tokenizers`."""

from typing import Any

from keras_bft._extras import import_extra
from keras_bft.models.llama._sentencepiece_model import CONTROL
from keras_bft.models.llama._sentencepiece_model import USER_DEFINED
from keras_bft.models.llama._sentencepiece_model import SentencePieceModel
from keras_bft.models.llama._tokenizer_config import AddedTokenSpec
from keras_bft.models.llama._tokenizer_config import TokenizerConfig


def from_merges(
    vocabulary: dict[str, int],
    merges: list[tuple[str, ...]],
    config: TokenizerConfig,
) -> Any:
    """Builds the tokenizer that `LlamaTokenizer` of transformers 5 builds.

    Args:
        vocabulary: Id of every piece.
        merges: Pairs of pieces that merge, the first first.
        config: Says where a space is put in front.

    Returns:
        A `tokenizers.Tokenizer` without added tokens.
    """
    tokenizers = import_extra("tokenizers", "llm")
    decoders = import_extra("tokenizers.decoders", "llm")
    model = tokenizers.models.BPE(
        vocab=vocabulary, merges=merges, fuse_unk=True, byte_fallback=True
    )
    tokenizer = tokenizers.Tokenizer(model)
    scheme = "never"
    if config.add_prefix_space:
        scheme = "always" if config.legacy else "first"
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme, split=False
    )
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if config.add_prefix_space:
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def from_pieces(model: SentencePieceModel, config: TokenizerConfig) -> Any:
    """Builds it with all splits of pieces into pieces as merges.

    Args:
        model: The pieces.
        config: Says where a space is put in front.

    Returns:
        A `tokenizers.Tokenizer` without added tokens.
    """
    ids = {piece: index for index, piece in enumerate(model.pieces)}
    merges = [
        (index, piece[:split], piece[split:])
        for piece, index in ids.items()
        for split in range(1, len(piece))
        if piece[:split] in ids and piece[split:] in ids
    ]
    # As transformers orders them; a piece's id is the rank of its merges.
    merges.sort(
        key=lambda m: (m[0], len(m[1]), len(m[2]), ids[m[1]], ids[m[2]])
    )
    pairs: list[tuple[str, ...]] = [(left, right) for _, left, right in merges]
    return from_merges(ids, pairs, config)


def model_tokens(model: SentencePieceModel) -> list[AddedTokenSpec]:
    """Returns the pieces of a model that are added tokens, by id."""
    kinds = zip(model.pieces, model.types, strict=True)
    return [
        AddedTokenSpec(piece, {"normalized": False, "special": kind == CONTROL})
        for piece, kind in kinds
        if kind in (CONTROL, USER_DEFINED)
    ]
