"""Compressed files that others wrote: unpacked, but not without bound.

A kilobyte of DEFLATE can stand for a megabyte. Interactions, arrays and texts
are compressed to between a half and a fiftieth.
"""

import gzip
import math
import os
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

# What a file may always unpack to, and how many times its size beyond that.
FREE_BYTES = 2**26
MAX_RATIO = 200

_CHUNK = 2**20
_HEADERS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def read_gzip(path: Path, argument: str) -> bytes:
    """Reads a whole gzip file.

    Args:
        path: The file.
        argument: Argument that named it, for errors.

    Returns:
        What it unpacks to.

    Raises:
        ValueError: If it is not a whole gzip file, or unpacks to more than
            `FREE_BYTES` and more than `MAX_RATIO` times its size.
    """
    received = f"Received: {argument}={str(path)!r}"
    largest = _largest(path.stat().st_size)
    unpacked = BytesIO()
    try:
        with gzip.open(path) as file:
            while chunk := file.read(_CHUNK):
                unpacked.write(chunk)
                if unpacked.tell() > largest:
                    raise ValueError(_too_large(f"over {largest}", received))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"The file is not a whole gzip file ({error}). {received}"
        ) from error
    return unpacked.getvalue()


def read_npz(source: Any) -> dict[str, np.ndarray]:
    """Reads all arrays of an `.npz` file, without pickle.

    An array is read if its header and the size of its entry agree, so that no
    memory is taken for an array that is not there.

    Args:
        source: Path, or binary file object.

    Returns:
        The arrays by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a whole `.npz` file, holds objects, or unpacks
            to more than `FREE_BYTES` and more than `MAX_RATIO` times its size.
    """
    is_path = isinstance(source, str | os.PathLike)
    shown = repr(str(source)) if is_path else f"a {type(source).__name__}"
    received = f"Received: file={shown}"
    try:
        with zipfile.ZipFile(source) as archive:
            file: Any = archive.fp
            size = file.seek(0, os.SEEK_END)
            total = sum(info.file_size for info in archive.infolist())
            if total > _largest(size):
                raise ValueError(_too_large(str(total), received))
            return {
                info.filename.removesuffix(".npy"): _read_entry(archive, info)
                for info in archive.infolist()
            }
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        # Of broken files zipfile and NumPy raise a dozen kinds of errors.
        raise ValueError(
            "The file must be a whole .npz file of numbers and texts "
            f"({type(error).__name__}: {error!s:.300}). {received}"
        ) from error


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        version = npy.read_magic(member)
        if version not in _HEADERS:
            raise ValueError(f"{info.filename!r} has the version {version}")
        shape, _, dtype = _HEADERS[version](member)
        if dtype.hasobject:
            raise ValueError(
                f"{info.filename!r} holds pickled objects, which run whatever "
                "code they hold when they are loaded"
            )
        needed = member.tell() + math.prod(shape) * dtype.itemsize
        if needed != info.file_size:
            raise ValueError(
                f"{info.filename!r} has {info.file_size} bytes, and {needed} "
                f"by its dtype {dtype} and shape {shape}"
            )
    with archive.open(info) as member:
        array: np.ndarray = npy.read_array(member, allow_pickle=False)
        return array


def _largest(size: int) -> int:
    return max(FREE_BYTES, MAX_RATIO * size)


def _too_large(unpacked: str, received: str) -> str:
    return (
        f"The file unpacks to {unpacked} bytes, more than {MAX_RATIO} times "
        f"its size. Unpack it yourself if you trust it. {received}"
    )
