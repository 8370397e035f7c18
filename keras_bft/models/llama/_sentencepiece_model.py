"""Reading `tokenizer.model`, a SentencePiece model, without SentencePiece.

The file is a protocol buffer of which four fields matter here. Reading them
directly keeps two packages out of the requirements, and SentencePiece itself
can't be used: its ids differ from those of transformers around leading spaces
and special tokens.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6

# SentencePiece itself makes none that are longer.
MAX_PIECE = 512

_BPE = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    """The pieces of a SentencePiece BPE model.

    Attributes:
        pieces: Text of each piece; its index is its id.
        types: Type of each piece, such as `BYTE`.
    """

    pieces: list[str]
    types: list[int]

    def of_type(self, *types: int) -> list[str]:
        """Returns the pieces of some types, by id."""
        pairs = zip(self.pieces, self.types, strict=True)
        return [piece for piece, kind in pairs if kind in types]


def read_pieces(path: Path) -> SentencePieceModel:
    """Reads a BPE model with byte fallback, as Llama's are.

    Args:
        path: The file.

    Returns:
        Its pieces.

    Raises:
        ValueError: If the file is not a whole SentencePiece model, or has
            what a Llama tokenizer lacks: another algorithm, a normalisation
            rule, no byte fallback.
    """
    pieces: list[str] = []
    types: list[int] = []
    algorithm = 1
    charsmap = b""
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1:
                piece = dict(_fields(_expect_bytes(value)))
                pieces.append(_expect_bytes(piece[1]).decode("utf-8"))
                types.append(_expect_int(piece.get(3, NORMAL)))
            elif number == 2:
                trainer = dict(_fields(_expect_bytes(value)))
                algorithm = _expect_int(trainer.get(3, 1))
            elif number == 3:
                normalizer = dict(_fields(_expect_bytes(value)))
                charsmap = _expect_bytes(normalizer.get(2, b""))
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(
            "The file must be a whole SentencePiece model "
            f"({type(error).__name__}: {error}). Received: file={str(path)!r}"
        ) from error
    if not pieces:
        raise ValueError(
            "The file must be a SentencePiece model, and has no pieces. "
            f"Received: file={str(path)!r}"
        )
    model = SentencePieceModel(pieces, types)
    _check_llama(model, algorithm, charsmap, path)
    return model


def _check_llama(
    model: SentencePieceModel, algorithm: int, charsmap: bytes, path: Path
) -> None:
    if algorithm != _BPE:
        raise ValueError(
            "A Llama tokenizer is a SentencePiece model of the type BPE "
            f"({_BPE}). Received: file={str(path)!r} with "
            f"model_type={algorithm}"
        )
    if charsmap:
        raise ValueError(
            "A Llama tokenizer does not normalise text, but the SentencePiece "
            "model has a normalisation rule. Received: "
            f"file={str(path)!r}"
        )
    if len(set(model.pieces)) < len(model.pieces):
        [(twice, _)] = Counter(model.pieces).most_common(1)
        raise ValueError(
            "Every piece of the SentencePiece model must stand there once. "
            f"Received: file={str(path)!r} with {twice!r:.80} more than once"
        )
    longest = max(model.pieces, key=len)
    if len(longest) > MAX_PIECE:
        raise ValueError(
            "A piece of a SentencePiece model has at most "
            f"{MAX_PIECE} characters. Received: file={str(path)!r} with one of "
            f"{len(longest)}, {longest!r:.80}"
        )
    missing = {f"<0x{byte:02X}>" for byte in range(256)} - set(
        model.of_type(BYTE)
    )
    if missing:
        raise ValueError(
            "A Llama tokenizer falls back to bytes, but the SentencePiece "
            "model lacks pieces for some, and their text would be lost. "
            f"Received: file={str(path)!r} without {sorted(missing)[:3]}"
        )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and value of every field of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint(data, position)
        elif kind in (_BYTES, _FIXED32, _FIXED64):
            size = {_FIXED32: 4, _FIXED64: 8}.get(kind, 0)
            if kind == _BYTES:
                size, position = _varint(data, position)
            if number == 0 or position + size > len(data):
                raise ValueError(f"it breaks off or is malformed at {position}")
            value = data[position : position + size]
            position += size
        else:
            raise ValueError(f"no field can have the wire type {kind}")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number is too long at {position}")


def _expect_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a text is stored as a number")
    return value


def _expect_int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a number is stored as a text")
    return value
