"""Times of a column as numbers that sort."""

import operator
from datetime import UTC
from datetime import datetime
from typing import Any

import numpy as np

from keras_bft.data._ids import INT64_MAX
from keras_bft.data._ids import INT64_MIN
from keras_bft.data._ids import RowName


def parse_times(values: Any, column: str, name_row: RowName) -> np.ndarray:
    """Reads a column of times.

    Args:
        values: NumPy array of numbers, datetimes or objects, or list of text,
            shape `(N,)`. Text may hold ISO 8601 datetimes.
        column: Name of the column, for errors.
        name_row: Names the place of a row, for errors.

    Returns:
        Times of shape `(N,)`: int64 where all are integers, else float64.
        Datetimes become seconds since 1970, in UTC where they name no zone.

    Raises:
        ValueError: If a time is neither a number nor a datetime, not finite
            or beyond int64, or some datetimes name a zone and others do not.
    """
    kind = values.dtype.kind if isinstance(values, np.ndarray) else "O"
    if kind == "M":
        return _seconds(values)
    if kind == "i":
        return values.astype(np.int64)
    if kind == "O":
        _check_no_underscore(values, column, name_row)
        if len(values) and _datetime(values[0]) is not None:
            return _seconds(_datetimes(values, column, name_row))
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


def _seconds(times: np.ndarray) -> np.ndarray:
    """Datetimes as seconds since 1970, int64 if none has a fraction."""
    whole = times.astype("datetime64[s]")
    seconds = whole.astype(np.int64)
    if np.array_equal(whole, times):
        return seconds
    fraction: np.ndarray = (times - whole) / np.timedelta64(1, "s")
    return seconds + fraction


def _datetime(value: Any) -> datetime | None:
    """The datetime that a value is or is written as, in ISO 8601."""
    if isinstance(value, str):
        # Without the hyphens a date is a number, and was one in the source.
        if "-" not in value[1:]:
            return None
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, datetime) else None


def _datetimes(values: Any, column: str, name_row: RowName) -> np.ndarray:
    times = np.empty(len(values), "datetime64[us]")
    first = None
    for row, value in enumerate(values):
        time = _datetime(value)
        if time is None:
            raise _bad_time(value, column, name_row(row))
        first = time if first is None else first
        if (time.tzinfo is None) != (first.tzinfo is None):
            raise ValueError(
                f"Datetimes must all name their zone, or none, but column "
                f"{column!r} has both, the first such in {name_row(row)}. "
                f"Received: {value!r:.80}"
            )
        if time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        times[row] = time
    return times


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
        "Times must all be finite numbers within int64 or all datetimes such "
        f"as 2026-11-29T08:30, but column {column!r} has another value in "
        f"{place}. "
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
