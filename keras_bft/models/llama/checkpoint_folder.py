"""Checkpoints in folders of safetensors files, read tensor by tensor."""

import math
import os
import re
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

import numpy as np

from keras_bft._extras import import_extra
from keras_bft.models.llama._checkpoint_files import INDEX
from keras_bft.models.llama._checkpoint_files import find_files
from keras_bft.models.llama._safetensors_header import TensorEntry
from keras_bft.models.llama._safetensors_header import read_header

_HUB = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@(\S+))?")


def resolve_checkpoint(preset: str | os.PathLike[str]) -> Path:
    """Returns the local folder of a checkpoint, downloaded if need be.

    Args:
        preset: A folder, or `"hf://organization/name"` for a repository on
            the Hugging Face hub, with `"@revision"` behind it for a branch,
            tag or commit. Of a repository the safetensors, configuration and
            tokenizer files at the top are downloaded into the hub's cache.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: If a local folder does not exist.
        ImportError: If a download needs `huggingface_hub`.
        OSError: If the repository can be neither downloaded nor found in the
            cache.
        ValueError: If `preset` is neither.
    """
    name = os.fspath(preset)
    if isinstance(preset, str) and "://" in name:
        return _download(name)
    folder = Path(name)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ValueError(
            "`preset` must be a folder, not a file in it. Received: "
            f"preset={name!r}"
        )
    raise FileNotFoundError(
        "`preset` must be a folder that exists, or "
        '"hf://organization/name[@revision]" for a repository on the Hugging '
        f"Face hub. Received: preset={name!r}"
    )


def _download(preset: str) -> Path:
    match = _HUB.fullmatch(preset)
    if match is None:
        raise ValueError(
            '`preset` must be a folder or "hf://organization/name[@revision]". '
            f"Received: preset={preset!r}"
        )
    hub = import_extra("huggingface_hub", "llm")
    patterns = ["*.safetensors", "*.json", "*.model", "*.jinja", "*.txt"]
    try:
        return Path(
            hub.snapshot_download(
                match[1],
                revision=match[2],
                allow_patterns=patterns,
                # Other formats of the same weights.
                ignore_patterns=["*/*", "consolidated*"],
            )
        )
    except hub.errors.HFValidationError as error:
        raise ValueError(
            f"`preset` names no valid repository ({error}). Received: "
            f"preset={preset!r}"
        ) from error
    except OSError as error:
        raise OSError(
            "The repository can neither be downloaded nor is it in the local "
            "cache. Check its name and revision, the connection, that "
            "HF_HUB_OFFLINE is not set, and `hf auth login` if it is private "
            f"or gated. Received: preset={preset!r} ({error})"
        ) from error


class CheckpointFolder:
    """A folder with `model.safetensors`, or an index and its shards.

    The headers of all files are checked when the object is made, so a file
    that is broken, truncated or does not fit its index is refused before any
    tensor is read. Files are not memory-mapped: the pages that a mapping has
    touched stay resident, so that reading all tensors one by one would take
    the memory of the whole checkpoint.

    Args:
        path: The folder. A link in it may lead to a place in the folder or,
            in the cache of the Hugging Face hub, to that cache's blobs.

    Raises:
        ValueError: If the folder has no safetensors files (pickle files are
            refused, since loading them runs code), or they are malformed.

    Examples:

    >>> import json, pathlib, tempfile
    >>> header = json.dumps(
    ...     {"bias": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    ... ).encode()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "model.safetensors").write_bytes(
    ...         len(header).to_bytes(8, "little")
    ...         + header
    ...         + np.array([1, 2], "<f4").tobytes()
    ...     )
    ...     checkpoint = CheckpointFolder(folder)
    ...     print(checkpoint.names, checkpoint.read("bias"))
    ['bias'] [1. 2.]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(
                "`path` must be a folder that exists. Received: "
                f"path={str(path)!r}"
            )
        self._entries = _read_entries(self.path.resolve())

    @property
    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return self._entry(name).shape

    def dtype(self, name: str) -> np.dtype:
        """Returns the dtype of a tensor, `ml_dtypes.bfloat16` for BF16."""
        return self._entry(name).dtype

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor into an array of its own.

        Args:
            name: One of `names`.

        Returns:
            The tensor, in the dtype of the file.

        Raises:
            ValueError: If there is no such tensor, or the file has become
                shorter since its header was read.
        """
        entry = self._entry(name)
        array = np.empty(entry.shape, entry.dtype)
        with open(entry.path, "rb") as file:
            file.seek(entry.start)
            _read_into(array, file, name)
        return array

    def blocks(
        self, name: str, max_bytes: int = 4_000_000
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Reads one tensor in blocks of rows.

        Args:
            name: One of `names`, of a tensor with at least one axis.
            max_bytes: Size of a block, if that is a row or more. Defaults to
                4 MB.

        Yields:
            The rows, and an array of them.

        Raises:
            ValueError: As in `read`.
        """
        entry = self._entry(name)
        total, *rest = entry.shape
        row_bytes = math.prod(rest) * entry.dtype.itemsize
        step = max(1, max_bytes // max(1, row_bytes))
        with open(entry.path, "rb") as file:
            file.seek(entry.start)
            for start in range(0, total, step):
                rows = slice(start, min(total, start + step))
                array = np.empty((rows.stop - start, *rest), entry.dtype)
                _read_into(array, file, name)
                yield rows, array

    def _entry(self, name: str) -> TensorEntry:
        if name not in self._entries:
            raise ValueError(
                f"The checkpoint {str(self.path)!r} has no such tensor. "
                f"Received: name={name!r}, but its {len(self._entries)} names "
                f"start {self.names[:3]}"
            )
        return self._entries[name]


def _read_into(array: np.ndarray, file: BufferedReader, name: str) -> None:
    count = file.readinto(array.reshape(-1).view(np.uint8).data)
    if count != array.nbytes:
        raise ValueError(
            "The file has become shorter since its header was read: at least "
            f"{array.nbytes - count} bytes of the tensor {name!r} are gone. "
            f"Received: file={file.name!r}"
        )


def _read_entries(folder: Path) -> dict[str, TensorEntry]:
    files, weight_map = find_files(folder)
    entries: dict[str, TensorEntry] = {}
    for path in files:
        header = read_header(path)
        if weight_map is not None:
            placed = {
                name for name, file in weight_map.items() if file == path.name
            }
            for name in sorted(placed ^ set(header)):
                raise ValueError(
                    f"The index places the tensor {name!r:.80} in "
                    f"{weight_map.get(name, 'no file')!r:.80}, but it is "
                    f"{'in' if name in header else 'not in'} {path.name!r}. "
                    f"Received: file={str(folder / INDEX)!r}"
                )
        entries |= header
    return entries
