"""Arrays and id maps in a folder, as NPZ and JSON without pickle."""

import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft._json_files import read_json
from keras_bft._packed_files import read_npz
from keras_bft.data._ids import INT64_MAX
from keras_bft.data._ids import INT64_MIN
from keras_bft.data._ids import id_array

_ARRAYS_FILE = "interactions.npz"
_IDS_FILE = "ids.json"
# What JSON gives back as it was.
_STORED_ID_TYPES = (bool, float, int, str)


def write_folder(
    folder: str | PathLike[str],
    arrays: Mapping[str, np.ndarray],
    ids: Mapping[str, np.ndarray],
) -> None:
    """Writes arrays and ids into a folder, which is made where needed.

    Args:
        folder: Folder to write into; earlier files are replaced.
        arrays: Numeric arrays by name.
        ids: Ids by name: integers, strings, floats or booleans.

    Raises:
        TypeError: If an id is of another type.
    """
    lists = {name: values.tolist() for name, values in ids.items()}
    for name, values in lists.items():
        for value in values:
            if type(value) not in _STORED_ID_TYPES:
                raise TypeError(
                    "Only integers, strings, floats and booleans can be saved "
                    f"as ids, but `{name}` holds {value!r}. Received: "
                    f"type={type(value).__name__}"
                )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / _ARRAYS_FILE, allow_pickle=False, **arrays)
    (folder / _IDS_FILE).write_text(json.dumps(lists), encoding="utf-8")


def read_folder(
    folder: str | PathLike[str],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads what `write_folder` wrote.

    Args:
        folder: Folder with both files.

    Returns:
        Tuple of the arrays and the ids, each by name.

    Raises:
        FileNotFoundError: If the folder lacks one of the two files.
        ValueError: If a file is damaged, or `ids.json` holds anything but
            lists of different ids.
    """
    path = Path(folder) / _IDS_FILE
    lists = read_json(path)
    for name, values in lists.items():
        _check_ids(name, values, path)
    arrays = read_npz(Path(folder) / _ARRAYS_FILE)
    return arrays, {name: id_array(values) for name, values in lists.items()}


def _check_ids(name: str, values: Any, path: Path) -> None:
    is_list = isinstance(values, list)
    wrong = [x for x in values if not _is_id(x)] if is_list else [values]
    if wrong:
        raise ValueError(
            f"`{name:.40}` must be a list of integers within int64, strings, "
            "finite numbers and booleans. Received: "
            f"file={str(path)!r} with {wrong[0]!r:.80}"
        )
    if len(set(values)) < len(values):
        raise ValueError(
            f"`{name:.80}` must be different ids. Received: file={str(path)!r} "
            f"with {len(values)} ids, {len(set(values))} of them different"
        )


def _is_id(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (
        isinstance(value, int) and INT64_MIN <= value <= INT64_MAX
    )
