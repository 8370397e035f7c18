"""The header of one safetensors file, believed in nothing it says.

A file is eight bytes (the length of the header, little-endian), the header
(JSON: name to dtype, shape and byte range) and the tensors' bytes, which fill
the rest of the file without gaps.
"""

import math
from pathlib import Path
from typing import Any
from typing import NamedTuple
from typing import NoReturn

import numpy as np

from keras_bft._extras import import_extra
from keras_bft._json_files import parse_json

# A Llama of a thousand layers needs a fiftieth of it. The safetensors package
# allows 100 MB, of which Python can make gigabytes of small objects.
MAX_HEADER_BYTES = 20_000_000

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

_MAX_DIMENSIONS = 64  # of a NumPy array


class TensorEntry(NamedTuple):
    """Where a tensor lies in its file, and what it is."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def numpy_dtype(code: str) -> np.dtype:
    """Returns the NumPy dtype of a key of `ITEM_BYTES`."""
    if code == "BF16":
        return np.dtype(import_extra("ml_dtypes", "llm").bfloat16)
    return np.dtype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[code])


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Reads and checks the header of a safetensors file.

    Args:
        path: The file.

    Returns:
        Every tensor's entry by its name, in the order of the file.

    Raises:
        ValueError: If the header is malformed, or the tensors do not fill the
            rest of the file exactly.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(
                f"A safetensors file starts with the length of its header, at "
                f"most {MAX_HEADER_BYTES} bytes and inside the file, but this "
                f"one has {size} bytes and a header of {length}: it is "
                "truncated or of another format. Received: "
                f"file={str(path)!r}"
            )
        text = file.read(length)
        if text.startswith(b"\xef\xbb\xbf"):
            raise ValueError(
                "The header of a safetensors file starts with '{', not with a "
                f"byte order mark. Received: file={str(path)!r}"
            )
        header = parse_json(text, path)

    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str) for value in metadata.values()
    ):
        raise ValueError(
            "`__metadata__` must map texts to texts. Received: "
            f"file={str(path)!r}, __metadata__={metadata!r:.200}"
        )
    entries = {
        name: _entry(name, value, 8 + length, path)
        for name, value in header.items()
    }
    _check_cover(entries, 8 + length, size, path)
    return entries


def _entry(name: str, value: Any, origin: int, path: Path) -> TensorEntry:
    def refuse(problem: str) -> NoReturn:
        raise ValueError(
            f"The tensor {name!r:.80} {problem}. Received: file={str(path)!r}, "
            f"{name:.80}={value!r:.200}"
        )

    if not isinstance(value, dict) or set(value) != {
        "dtype",
        "shape",
        "data_offsets",
    }:
        refuse("must have `dtype`, `shape` and `data_offsets`, nothing else")
    code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(code, str) or code not in ITEM_BYTES:
        refuse(
            f"must have one of the dtypes {', '.join(ITEM_BYTES)}, so an "
            "integer or quantized checkpoint has to be converted first"
        )
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        refuse(
            "must have a `shape` that is a list of at most "
            f"{_MAX_DIMENSIONS} non-negative integers"
        )
    if math.prod(max(size, 1) for size in shape) * ITEM_BYTES[code] >= 2**63:
        refuse("has a `shape` that no array can have")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        refuse("must have `data_offsets` [start, stop], 0 <= start <= stop")
    size = math.prod(shape) * ITEM_BYTES[code]
    if offsets[1] - offsets[0] != size:
        refuse(
            f"needs {size} bytes by its shape and dtype, but `data_offsets` "
            f"span {offsets[1] - offsets[0]}"
        )
    start, stop = (origin + offset for offset in offsets)
    return TensorEntry(path, numpy_dtype(code), tuple(shape), start, stop)


def _are_sizes(value: Any) -> bool:
    # `type`, because True is an `int` too.
    return isinstance(value, list) and all(
        type(size) is int and size >= 0 for size in value
    )


def _check_cover(
    entries: dict[str, TensorEntry], origin: int, size: int, path: Path
) -> None:
    reached, before = origin, "the header"
    for name, entry in sorted(
        entries.items(), key=lambda item: (item[1].start, item[1].stop)
    ):
        if entry.stop > size:
            raise ValueError(
                f"The tensor {name!r:.80} ends at byte {entry.stop} of a file "
                f"of {size} bytes, which is truncated or has a wrong header. "
                f"Received: file={str(path)!r}"
            )
        if entry.start != reached:
            raise ValueError(
                f"The tensor {name!r:.80} starts at byte {entry.start}, but "
                f"{before} ends at {reached}; tensors must neither overlap "
                f"nor leave gaps. Received: file={str(path)!r}"
            )
        reached, before = entry.stop, f"{name!r:.80}"
    if reached != size:
        raise ValueError(
            f"The file has {size - reached} bytes after {before}, which "
            f"belong to no tensor. Received: file={str(path)!r}"
        )
