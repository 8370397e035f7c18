"""Writing checkpoints as safetensors files."""

import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_bft._extras import import_extra
from keras_bft.models.llama._checkpoint_files import INDEX
from keras_bft.models.llama._checkpoint_files import SINGLE
from keras_bft.models.llama._safetensors_header import ITEM_BYTES
from keras_bft.models.llama._safetensors_header import numpy_dtype

_OURS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


class TensorSource(NamedTuple):
    """A tensor to be written, which is made only when its turn comes.

    Attributes:
        name: Name in the checkpoint.
        shape: Shape in the checkpoint.
        dtype: Dtype in the checkpoint: `"float64"`, `"float32"`, `"float16"`
            or `"bfloat16"` (of `ml_dtypes`).
        read: Returns the tensor, of this shape and dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensor takes."""
        return math.prod(self.shape) * _dtype(self).itemsize


def write_checkpoint(
    folder: str | os.PathLike[str],
    tensors: Sequence[TensorSource],
    *,
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> list[Path]:
    """Writes tensors as one safetensors file, or as shards with an index.

    One shard is held in memory at a time. Everything is written beside the
    folder's files first and takes its name once it is whole, the index last.

    Args:
        folder: Folder of the checkpoint. It is made where it does not exist.
        tensors: The tensors, written in this order.
        max_shard_bytes: Bytes of tensors in a file. Only a tensor that is
            larger by itself makes a larger file. Defaults to 5 GB.
        overwrite: Whether a checkpoint in the folder is replaced, with all
            its shards. Other files are left alone. Defaults to `False`.

    Returns:
        The files, the index last if there is one.

    Raises:
        FileExistsError: If the folder holds a checkpoint and `overwrite` is
            `False`.
        ValueError: If an argument is out of range or a tensor is not as
            announced. Nothing has changed in the folder then.

    Examples:

    >>> import tempfile
    >>> bias = np.ones(3, "float32")
    >>> source = TensorSource("bias", (3,), "float32", lambda: bias)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path] = write_checkpoint(folder, [source])
    ...     print(path.name)
    model.safetensors
    """
    shards = _plan(tensors, max_shard_bytes)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    earlier = [path for path in target.iterdir() if _OURS.fullmatch(path.name)]
    if earlier and not overwrite:
        raise FileExistsError(
            "The folder already holds a checkpoint. Give another one, or "
            f"`overwrite=True` to replace it. Received: folder={str(folder)!r} "
            f"with {sorted(path.name for path in earlier)[:10]}"
        )
    save_file = import_extra("safetensors.numpy", "llm").save_file
    names = [SINGLE]
    if len(shards) > 1:
        names = [
            f"model-{number:05}-of-{len(shards):05}.safetensors"
            for number in range(1, len(shards) + 1)
        ]
    with tempfile.TemporaryDirectory(prefix=".part-", dir=target) as part:
        parts = [Path(part, name) for name in names]
        for path, shard in zip(parts, shards, strict=True):
            save_file(
                {source.name: _read(source) for source in shard},
                path,
                metadata={"format": "pt"},
            )
        if len(shards) > 1:
            parts.append(Path(part, INDEX))
            parts[-1].write_text(_index(names, shards), encoding="utf-8")
        _share(parts, Path(part))
        # The old index goes first and the new one comes last: shards of two
        # checkpoints under one index would load without an error.
        for path in sorted(earlier, key=lambda path: path.name != INDEX):
            if path.name == INDEX or path.name not in names:
                path.unlink()
        return [path.replace(target / path.name) for path in parts]


def _plan(
    tensors: Sequence[TensorSource], max_shard_bytes: int
) -> list[list[TensorSource]]:
    if max_shard_bytes < 1:
        raise ValueError(
            "`max_shard_bytes` must be at least 1. Received: "
            f"max_shard_bytes={max_shard_bytes}"
        )
    names = [source.name for source in tensors]
    if not names:
        raise ValueError(
            "A checkpoint needs at least one tensor. Received: "
            f"tensors={tensors!r}"
        )
    if len(set(names)) < len(names) or "__metadata__" in names:
        wrong = {name for name in names if names.count(name) > 1}
        raise ValueError(
            "`tensors` must have names of their own, other than "
            f"'__metadata__'. Received: {sorted(wrong or {'__metadata__'})}"
        )
    shards: list[list[TensorSource]] = []
    room = 0
    for source in tensors:
        if not shards or source.num_bytes > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(source)
        room -= source.num_bytes
    return shards


def _dtype(source: TensorSource) -> np.dtype:
    known = {dtype.name: dtype for dtype in map(numpy_dtype, ITEM_BYTES)}
    if source.dtype not in known:
        raise ValueError(
            f"The tensor {source.name!r} must have one of the dtypes "
            f"{', '.join(known)}. Received: dtype={source.dtype!r}"
        )
    return known[source.dtype]


def _read(source: TensorSource) -> np.ndarray:
    # safetensors writes the buffer as it lies in memory, so a transposed view
    # has to become an array in its own order first.
    array = np.asarray(source.read(), order="C")
    if array.shape != tuple(source.shape) or array.dtype != _dtype(source):
        raise ValueError(
            f"The tensor {source.name!r} must have shape "
            f"{tuple(source.shape)} and dtype {source.dtype}, as announced. "
            f"Received: shape={array.shape}, dtype={array.dtype.name}"
        )
    return array


def _index(names: list[str], shards: list[list[TensorSource]]) -> str:
    placed = [
        (source, name)
        for name, shard in zip(names, shards, strict=True)
        for source in shard
    ]
    content = {
        "metadata": {
            "total_size": sum(source.num_bytes for source, _ in placed)
        },
        "weight_map": {source.name: name for source, name in placed},
    }
    return json.dumps(content, indent=2) + "\n"


def _share(paths: list[Path], folder: Path) -> None:
    """Gives files the permissions that the user's new files have.

    safetensors makes files that only their owner may read.
    """
    probe = folder / "probe"
    probe.touch()
    for path in paths:
        path.chmod(probe.stat().st_mode & 0o777)
