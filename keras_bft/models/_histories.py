"""Item histories as they come from users: checks and padded lengths."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np


def is_ragged(x: Any) -> bool:
    """Whether `x` is a list of histories, and not one of arrays of a batch."""
    if not isinstance(x, (list, tuple)) or not x:
        return False
    return all(
        isinstance(row, (list, tuple))
        or (isinstance(row, np.ndarray) and row.ndim == 1)
        for row in x
    )


def check_ids(name: str, ids: np.ndarray, num_items: int) -> None:
    """Raises a `ValueError` unless all ids are from 0 to `num_items`."""
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"`{name}` must hold integer item ids. Received: dtype {ids.dtype}"
        )
    wrong = ids[(ids < 0) | (ids > num_items)]
    if wrong.size:
        raise ValueError(
            f"`{name}` holds an unknown item id: ids that it may hold go from "
            f"1 to {num_items}, and 0 is padding. "
            f"Received: {wrong.flat[0]}"
        )


def check_histories(
    histories: Sequence[Sequence[int] | np.ndarray], num_items: int
) -> list[np.ndarray]:
    """Histories as arrays, none empty, all ids from 1 to `num_items`.

    Raises:
        ValueError: If a history is empty, is not one-dimensional, or holds an
            id that is unknown or not an integer.
    """
    arrays = []
    for row, history in enumerate(histories):
        array = np.asarray(history)
        if array.ndim != 1 or array.size == 0:
            hint = ""
            if array.ndim == 1:
                hint = (
                    "For a user without a history there is no state: leave "
                    "the user out and offer what is popular. "
                )
            raise ValueError(
                "`histories` must hold one non-empty sequence of item ids per "
                f"user. {hint}Received: histories[{row}] of shape {array.shape}"
            )
        if array.dtype.kind in "USO":
            raise ValueError(
                "`histories` must hold integer item codes, as "
                "`keras_bft.data.Interactions.encode` makes them of original "
                f"ids. Received: histories[{row}]={array!s:.80}"
            )
        check_ids(f"histories[{row}]", array, num_items)
        if np.any(array == 0):
            raise ValueError(
                f"`histories[{row}]` holds the padding id 0. Ids go from 1 to "
                f"`num_items`={num_items}; leave padding out. "
                f"Received: {array.tolist()[:20]}"
            )
        arrays.append(array)
    return arrays


def bucket_length(length: int, max_length: int) -> int:
    """Padded length: the smallest of max_length / 8, / 4, / 2, / 1 that fits.

    Few lengths, since JAX compiles anew for each.
    """
    for divisor in (8, 4, 2):
        size = -(-max_length // divisor)
        if length <= size:
            return size
    return max_length


def chunks_of_similar_length(
    lengths: Sequence[int], max_length: int, size: int
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Groups histories that are padded to the same length.

    Yields:
        Positions of at most `size` histories, their padded length, and the
        number of rows to pad them to: few, since JAX compiles anew for each.
    """
    buckets = np.array([bucket_length(n, max_length) for n in lengths])
    for length in np.unique(buckets):
        users = np.flatnonzero(buckets == length)
        for start in range(0, len(users), size):
            chunk = users[start : start + size]
            rows = 1 << (len(chunk) - 1).bit_length()
            yield chunk, int(length), size if len(users) > size else rows


def padded_batch(
    sequences: list[np.ndarray], length: int, rows: int
) -> np.ndarray:
    """The newest `length` entries, padded with zeros to `(rows, length)`."""
    batch = np.zeros((rows, length), "int32")
    for row, sequence in zip(batch, sequences, strict=False):
        newest = sequence[-length:]
        row[: len(newest)] = newest
    return batch
