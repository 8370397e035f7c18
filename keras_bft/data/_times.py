"""Times of a column as numbers that sort."""

import operator
from typing import Any

import numpy as np

from keras_bft.data._ids import INT64_MAX
from keras_bft.data._ids import INT64_MIN
from keras_bft.data._ids import RowName


def parse_times(values: Any, column: str, name_row: RowName) -> np.ndarray:
    """Reads a column of times.

    Args:
        values: NumPy array of numbers, datetimes or objects, or list of text,
            shape `(N,)`.
        column: Name of the column, for errors.
        name_row: Names the place of a row, for errors.

    Returns:
        Times of shape `(N,)`: int64 where all are integers, else float64.
        Datetimes become integers in their own unit since 1970.

    Raises:
        ValueError: If a time is no number, not finite or beyond int64.
    """
    kind = values.dtype.kind if isinstance(values, np.ndarray) else "O"
    if kind == "M":
        return values.astype(np.int64)
    if kind == "i":
        return values.astype(np.int64)
    if kind == "O":
        _check_no_underscore(values, column, name_row)
    times = values if kind == "f" else _integers(values, column, name_row)
    if times is None:
        times = _floats(values, column, name_row)
    times = times.astype(np.float64) if times.dtype.kind == "f" else times
    bad = ~np.isfinite(times)
    if bad.any():
        row = int(np.argmax(bad))
        raise _bad_time(values[row], column, name_row(row))
    return times


def _check_no_underscore(values: Any, column: str, name_row: RowName) -> None:
    # Python reads `1_5` as 15, other programs as text or as a range.
    for row, value in enumerate(values):
        if isinstance(value, str) and "_" in value:
            raise _bad_time(value, column, name_row(row))


def _integers(values: Any, column: str, name_row: RowName) -> np.ndarray | None:
    """Times as int64, or `None` if one of them is no integer."""
    try:
        # `int` would cut the fraction off a float, `index` refuses it.
        times = [
            int(x) if isinstance(x, str) else operator.index(x) for x in values
        ]
    except (TypeError, ValueError):
        return None
    for time in (min(times), max(times)):
        if not INT64_MIN <= time <= INT64_MAX:
            raise _bad_time(time, column, name_row(times.index(time)))
    return np.array(times, dtype=np.int64)


def _floats(values: Any, column: str, name_row: RowName) -> np.ndarray:
    times = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            times[row] = float(value)
        except (TypeError, ValueError) as error:
            raise _bad_time(value, column, name_row(row)) from error
    return times


def _bad_time(value: Any, column: str, place: str) -> ValueError:
    return ValueError(
        f"Times must be finite numbers within int64 or, in a DataFrame, "
        f"datetimes, but column {column!r} has another value in {place}. "
        f"Received: {value!r:.80}"
    )


def check_times(times: np.ndarray, user_codes: np.ndarray) -> None:
    """Checks the times of rows that are sorted by user and time.

    Args:
        times: Time of each row.
        user_codes: User of each row, shape `(N,)`, sorted.

    Raises:
        ValueError: If they are not finite numbers of shape `(N,)`, or those of
            a user fall.
    """
    if times.shape != user_codes.shape or times.dtype.kind not in "iuf":
        raise ValueError(
            "`timestamps` must have one time a row, a number, shape "
            f"{user_codes.shape}. Received: timestamps.shape={times.shape}, "
            f"timestamps.dtype={times.dtype}"
        )
    if not np.isfinite(times).all():
        row = int(np.argmin(np.isfinite(times)))
        raise ValueError(
            "`timestamps` must be finite. Received: "
            f"timestamps[{row}]={times[row]}"
        )
    # Compared, as differences of integers may overflow.
    falls = (times[1:] < times[:-1]) & (user_codes[1:] == user_codes[:-1])
    if falls.any():
        row = int(np.argmax(falls))
        raise ValueError(
            "`timestamps` of a user must not fall. Received: "
            f"timestamps[{row}:{row + 2}]={times[row : row + 2]}"
        )
