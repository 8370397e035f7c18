"""Files with one user a line: `user item item ...`, oldest item first."""

from itertools import chain
from pathlib import Path

import numpy as np

from keras_bft.data._files import read_bytes
from keras_bft.data._ids import INT64_MAX
from keras_bft.data.interactions import Interactions


def read_line_file(path: Path) -> Interactions:
    """Reads lines `user item item ...` of integer ids from 1.

    Blank lines are skipped, any white space separates, and line ends may be
    those of any system. A line with a user alone is a user without
    interactions, which is kept (`Interactions.num_empty_users` counts them).

    Args:
        path: File to read, compressed if its name ends in `.gz`.

    Returns:
        The interactions, without times.

    Raises:
        ValueError: If a line is malformed, a user has two lines, there is
            no interaction at all, or a `.gz` file is broken or a bomb.
    """
    lines = read_bytes(path).splitlines()
    fields = [line.split() for line in lines]
    numbers = [number for number, words in enumerate(fields, 1) if words]
    fields = [words for words in fields if words]

    flat = list(chain.from_iterable(fields))
    text = b"".join(flat)
    # 18 digits always fit in int64. Longer ids may or may not, so those lines
    # are looked at one by one, as are lines with anything but digits.
    if not text.isdigit() or max(map(len, flat)) > 18:
        for number, words in zip(numbers, fields, strict=True):
            _check_line(number, words, lines[number - 1], path)
    ids = np.array(flat).astype(np.int64)

    lengths = np.array([len(words) for words in fields])
    ends = np.cumsum(lengths)
    if not ids.all():
        line = int(np.searchsorted(ends, np.argmin(ids), side="right"))
        _check_line(numbers[line], fields[line], lines[numbers[line] - 1], path)
    is_user = np.zeros(len(ids), dtype=bool)
    is_user[ends - lengths] = True
    user_ids = ids[is_user]
    _check_users(user_ids, numbers, path)
    if is_user.all():
        raise ValueError(
            "The file holds no interactions: every line has a user and no "
            f"item. Received: source={str(path)!r}"
        )
    item_ids, item_codes = np.unique(ids[~is_user], return_inverse=True)
    return Interactions.from_rows(
        user_codes=np.repeat(np.arange(len(user_ids)), lengths - 1),
        item_codes=item_codes + 1,
        timestamps=None,
        user_ids=user_ids,
        item_ids=item_ids,
    )


def _check_line(
    number: int, words: list[bytes], line: bytes, path: Path
) -> None:
    for word in words:
        shown = word[:40].decode("utf-8", "replace")
        if word.removeprefix(b"-").isdigit():
            if len(word) <= 20 and 1 <= int(word) <= INT64_MAX:
                continue
            problem = (
                f"Ids lie in 1..{INT64_MAX} (0 is padding), but line {number} "
                f"has {shown}"
            )
        else:
            problem = (
                "A line is `user item item ...` with integer ids, but line "
                f"{number} has {shown!r}"
            )
        text = line.decode("utf-8", "replace")
        if len(text) > 80:
            text = text[:77] + "..."
        raise ValueError(
            f"{problem}. Tables of other ids can be read as CSV or TSV. "
            f"Received: source={str(path)!r}, line {number}: {text!r}"
        )


def _check_users(user_ids: np.ndarray, numbers: list[int], path: Path) -> None:
    users, counts = np.unique(user_ids, return_counts=True)
    twice = users[counts > 1]
    if len(twice):
        where = [numbers[i] for i in np.flatnonzero(user_ids == twice[0])]
        raise ValueError(
            "A user's whole history stands on one line, but "
            f"{len(twice)} users have more than one; user {twice[0]} is on "
            f"lines {where[:5]}. Join their lines, in time order. Received: "
            f"source={str(path)!r}"
        )
