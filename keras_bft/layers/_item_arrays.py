"""Checks of what is known of the items of a catalogue."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def checked_sizes(num_categories: Any, categorical: Any) -> tuple[int, ...]:
    """Number of values of each column of categories, 0 included.

    Raises:
        ValueError: If a given one is not a positive integer.
    """
    if num_categories is None:
        if categorical is None:
            return ()
        values = _columns("categorical", categorical)
        if values.dtype.kind not in "iu" or not values.size:
            return (1,) * values.shape[1]
        return tuple(int(size) for size in values.max(axis=0) + 1)
    sizes = np.asarray(num_categories)
    if sizes.ndim != 1 or (
        sizes.size and (sizes.dtype.kind not in "iu" or sizes.min() < 1)
    ):
        raise ValueError(
            "`num_categories` must hold the number of values, 1 or more, of "
            "each column of `categorical`. "
            f"Received: num_categories={num_categories}"
        )
    return tuple(sizes.tolist())


def checked_categorical(
    categorical: Any, rows: int, sizes: Sequence[int]
) -> np.ndarray:
    """Categories `(rows, columns)`, int32, 0 in the row of padding.

    All are 0, unknown, if `categorical` is `None`.

    Raises:
        ValueError: If they are not such, or outside `sizes`.
    """
    if categorical is None:
        return np.zeros((rows, len(sizes)), "int32")
    values = _columns("categorical", categorical, rows)
    if values.dtype.kind not in "iu":
        raise ValueError(
            "`categorical` must hold integers. "
            f"Received: categorical of dtype {values.dtype}"
        )
    if values.shape[1] != len(sizes):
        raise ValueError(
            "`categorical` must have a column for each of `num_categories`. "
            f"Received: {values.shape[1]} columns for "
            f"num_categories={list(sizes)}"
        )
    values = np.concatenate([np.zeros_like(values[:1]), values[1:]])
    wrong = np.argwhere((values < 0) | (values >= np.array(sizes)))
    if len(wrong):
        item, column = wrong[0]
        raise ValueError(
            "`categorical` must hold categories from 0, none or unknown, to "
            "one below their number. Received: "
            f"{values[item, column]} for item {item} in column {column}, "
            f"num_categories={list(sizes)}"
        )
    return values.astype("int32")


def checked_dense(dense: Any, rows: int, columns: int | None) -> np.ndarray:
    """Numbers `(rows, columns)`, float32, 0 in the row of padding.

    All are 0 if `dense` is `None`.

    Raises:
        ValueError: If they are not such, or not finite.
    """
    if dense is None:
        return np.zeros((rows, columns or 0), "float32")
    values = _columns("dense", dense, rows)
    if values.dtype.kind not in "iufb":
        raise ValueError(
            "`dense` must hold numbers. "
            f"Received: dense of dtype {values.dtype}"
        )
    if columns is not None and values.shape[1] != columns:
        raise ValueError(
            "`dense` must have `num_dense` columns. Received: "
            f"{values.shape[1]} columns, num_dense={columns}"
        )
    with np.errstate(over="ignore"):
        values = values.astype("float32")
    values[0] = 0.0
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        item, column = wrong[0]
        raise ValueError(
            "`dense` must be finite in float32; put in a number, such as the "
            "mean, for what is missing. Received: "
            f"{np.asarray(dense)[item, column]} for item {item} in column "
            f"{column}"
        )
    return values


def _columns(name: str, array: Any, rows: int | None = None) -> np.ndarray:
    values = np.asarray(array)
    if values.ndim != 2 or (rows is not None and len(values) != rows):
        expected = (
            "num_items + 1" if rows is None else f"num_items + 1 = {rows}"
        )
        raise ValueError(
            f"`{name}` must have shape `({expected}, columns)`, a row for "
            f"padding first. Received: {name} of shape {values.shape}"
        )
    return values
