"""Reading the ranks that were written to a file."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft._packed_files import read_gzip

COLUMNS = (
    "user",
    "target",
    "history_length",
    "rank",
    "filter_seen",
    "num_items",
)


def read_ranking_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `Ranking.to_csv` wrote.

    Args:
        path: The file.

    Returns:
        Arguments of `Ranking`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, or another file.
    """
    received = f"Received: path={os.fspath(path)!r}"
    header, *rows = _rows(Path(path), received) or [[]]
    if tuple(header) != COLUMNS or not rows:
        raise ValueError(
            "`path` must be a file written by `Ranking.to_csv`, with the "
            f"columns {', '.join(COLUMNS)} and at least one user. {received} "
            f"with {len(rows)} rows and the columns "
            f"{', '.join(header)[:200] or '(none)'}"
        )
    try:
        users, targets, lengths, ranks, filtered, num_items = zip(
            *rows, strict=True
        )
        [filter_seen], [count] = set(filtered), set(num_items)
        values: dict[str, Any] = {
            "ranks": np.array(ranks, dtype="float64"),
            "targets": np.array(targets, dtype="int64"),
            "history_lengths": np.array(lengths, dtype="int64"),
            # As text, one long name would make all as long.
            "users": np.array(users, dtype=object),
            "num_items": int(count),
            "filter_seen": {"0": False, "1": True}[filter_seen],
        }
    except (ValueError, KeyError, OverflowError) as error:
        raise ValueError(
            "Every row must have a user, two integers, a rank, and the same "
            f"`filter_seen` (0 or 1) and `num_items` ({error!s:.200}). "
            f"{received}"
        ) from error
    for name, least in (("ranks", 1), ("targets", 1), ("history_lengths", 0)):
        # Not true of what is no number, either.
        wrong = ~(values[name] >= least)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"`{name}` count from {least}. {received} with "
                f"{name}[{row}]={values[name][row]}"
            )
    return values


def _rows(path: Path, received: str) -> list[list[str]]:
    is_packed = path.suffix == ".gz"
    content = read_gzip(path, "path") if is_packed else path.read_bytes()
    try:
        return list(csv.reader(io.StringIO(content.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            "`path` must be a file written by `Ranking.to_csv` "
            f"({error}). {received}"
        ) from error
