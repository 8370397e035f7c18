"""Folders of runs: their settings, and files that appear only when whole."""

import contextlib
import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft._json_files import read_json


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write, which takes the place of `path` at the end.

    A file is there whole or not at all, whenever the program is killed.

    Args:
        path: The file to be written.

    Yields:
        A path in the same folder, with the same suffixes.
    """
    part = path.with_name(f"part-{path.name}")
    yield part
    part.replace(path)


def fingerprint(*arrays: np.ndarray) -> str:
    """Returns a short text that changes when any number does."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def claim_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Makes an output folder for these settings, or checks that it is theirs.

    Args:
        folder: Folder of all runs. It is made where it does not exist.
        settings: What the results depend on, as JSON can hold it.

    Raises:
        ValueError: If the folder holds runs with other settings, or settings
            that are damaged.
    """
    path = folder / "settings.json"
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_text(json.dumps(settings, indent=2))
        return
    earlier = read_json(path)
    changed = [
        f"{name:.80} was {earlier.get(name)!r:.200} and now is "
        f"{settings.get(name)!r:.200}"
        for name in sorted(earlier | settings)
        if earlier.get(name) != settings.get(name)
    ]
    if changed:
        raise ValueError(
            f"The folder {str(folder)!r} holds runs with other settings: "
            f"{'; '.join(changed[:10])}. Go back to those, give another "
            "folder, or delete this one."
        )


def write_history(history: list[dict[str, float]], path: Path) -> None:
    """Writes one line an epoch; seconds are of training and validation."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(history[0]))
        writer.writeheader()
        writer.writerows(history)


def read_history(path: Path) -> list[dict[str, float]]:
    """Reads what `write_history` wrote.

    Args:
        path: The file.

    Returns:
        One dictionary an epoch.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            names, *rows = csv.reader(file, strict=True)
        return [dict(zip(names, map(float, row), strict=True)) for row in rows]
    except (ValueError, csv.Error) as error:
        raise ValueError(
            "`path` must be a file that `write_history` wrote "
            f"({error!s:.200}). Received: path={str(path)!r}"
        ) from error
