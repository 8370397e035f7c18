"""Arrays and id maps in a folder, as NPZ and JSON without pickle."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np

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
    """
    folder = Path(folder)
    lists = json.loads((folder / _IDS_FILE).read_text(encoding="utf-8"))
    with np.load(folder / _ARRAYS_FILE, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, {name: id_array(values) for name, values in lists.items()}
