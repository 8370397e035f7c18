"""Timestamps in a form that every backend can hold."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def whole_seconds(timestamps: np.ndarray) -> np.ndarray:
    """Integers as they are, and floats rounded down.

    Raises:
        ValueError: If a float is not finite or beyond int64.
    """
    if timestamps.dtype.kind != "f":
        return timestamps
    outside = ~(np.abs(timestamps) < 2.0**63)
    if outside.any():
        raise ValueError(
            "`timestamps` must be finite and within int64. "
            f"Received: {timestamps[outside][0]}"
        )
    return np.floor(timestamps).astype(np.int64)


def relative_timestamps(timestamps: np.ndarray) -> np.ndarray:
    """Seconds since the first timestamp of a sequence, int32.

    Models read time intervals alone. JAX has no 64-bit integers by default,
    and float32 would round a time in seconds to two minutes.

    Args:
        timestamps: Numbers of shape `(length,)`, in seconds, oldest first.
            Fractions of a second are dropped.

    Returns:
        Array of the same shape, int32, starting with 0.

    Raises:
        ValueError: If the first and another are more than 68 years apart, as
            they are if the unit is milliseconds or less.
    """
    if not len(timestamps):
        return timestamps.astype(np.int32)
    timestamps = whole_seconds(timestamps)
    # Python's integers do not overflow at the edge of int64.
    first, largest = int(timestamps[0]), int(timestamps.max())
    furthest = max(largest - first, first - int(timestamps.min()))
    if furthest > np.iinfo(np.int32).max:
        raise ValueError(
            "`timestamps` must be in seconds: two of one sequence are "
            f"{furthest} apart, more than 68 years. "
            f"Received: timestamps from {timestamps.min()} to {largest}"
        )
    return (timestamps.astype(np.int64) - first).astype(np.int32)


def flatten_timestamps(
    timestamps: Iterable[Any], lengths: np.ndarray
) -> np.ndarray:
    """Joins the relative timestamps of sequences end to end.

    Args:
        timestamps: One sequence of numbers, in seconds, for each user.
        lengths: Number of items of each user.

    Returns:
        Seconds since the first item of the user, `(sum(lengths),)`, int32.

    Raises:
        ValueError: If they are not finite numbers, or do not fit the lengths.
    """
    arrays = [np.asarray(times) for times in timestamps]
    if len(arrays) != len(lengths):
        raise ValueError(
            "`timestamps` must have one sequence per user. Received: "
            f"{len(arrays)} sequences for {len(lengths)} users"
        )
    for user, (times, length) in enumerate(zip(arrays, lengths, strict=True)):
        if times.shape != (length,) or (
            length and times.dtype.kind not in "iuf"
        ):
            raise ValueError(
                "`timestamps` must have one number per item. Received: "
                f"timestamps[{user}] of shape {times.shape} and dtype "
                f"{times.dtype} for {length} items"
            )
    return np.concatenate(
        [np.empty(0, np.int32), *map(relative_timestamps, arrays)]
    )
