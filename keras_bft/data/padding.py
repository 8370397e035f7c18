"""Sequences of any lengths as one right-padded array."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_bft.data._ids import check_codes

LARGEST_CODE = int(np.iinfo(np.int32).max)


def pad_sequences(sequences: Iterable[Any], length: int) -> np.ndarray:
    """Pads sequences with zeros on the right, keeping the newest items.

    Args:
        sequences: Item codes of each user, oldest first: 1-D arrays or lists of
            integers from 1, any lengths, also empty.
        length: Number of columns of the result. Of a longer sequence the last
            `length` items are kept.

    Returns:
        Array of shape `(len(sequences), length)`, int32, 0 where there is no
        item.

    Raises:
        ValueError: If `length` is below 1 or a sequence is not 1-D integers
            from 1.

    Examples:

    >>> from keras_bft.data import pad_sequences
    >>> pad_sequences([[5], [1, 2, 3, 4]], length=3)
    array([[5, 0, 0],
           [2, 3, 4]], dtype=int32)
    """
    if length < 1:
        raise ValueError(
            f"`length` must be at least 1. Received: length={length}"
        )
    items, ends, lengths = flatten_sequences(sequences)
    kept = np.minimum(lengths, length)
    return padded_rows(items, ends - kept, kept, length)


def flatten_sequences(
    sequences: Iterable[Any],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joins sequences end to end.

    Args:
        sequences: As in `pad_sequences`.

    Returns:
        Tuple of the items, shape `(N,)`, int32, and the end and length of each
        sequence in it, shape `(len(sequences),)`, int64.

    Raises:
        ValueError: If a sequence is not 1-D integers from 1.
    """
    arrays = [np.asarray(sequence) for sequence in sequences]
    for position, array in enumerate(arrays):
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise ValueError(
                "Sequences must be 1-D and hold integers, but the one at "
                f"position {position} has shape {array.shape} and type "
                f"{array.dtype}. Received: sequences[{position}]="
                f"{str(array)[:80]}"
            )
    lengths = np.fromiter(map(len, arrays), np.int64, count=len(arrays))
    # An empty list is an array of floats, so it must not take part.
    parts = [array for array in arrays if array.size]
    items = np.concatenate(parts) if parts else np.empty(0, np.int64)
    check_codes("sequences", items, items.shape, 1, LARGEST_CODE)
    return items.astype(np.int32), np.cumsum(lengths), lengths


def padded_rows(
    items: np.ndarray, starts: np.ndarray, lengths: np.ndarray, length: int
) -> np.ndarray:
    """Gathers stretches of a flat array into right-padded rows.

    Args:
        items: Shape `(N,)`.
        starts: First position of each row, shape `(B,)`.
        lengths: Number of items of each row, shape `(B,)`, at most `length`.
        length: Number of columns.

    Returns:
        Array of shape `(B, length)` in the type of `items`, 0 after the items.
    """
    offsets = np.arange(length)
    is_item = offsets < lengths[:, None]
    rows = np.zeros(is_item.shape, dtype=items.dtype)
    # Boolean masks of both sides run through the same places row by row.
    rows[is_item] = items[(starts[:, None] + offsets)[is_item]]
    return rows
