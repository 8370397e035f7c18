"""Original ids of a column to consecutive codes."""

import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_WHOLE_FLOAT = re.compile(r"(0|-?[1-9][0-9]*)\.0")

# Names the place of a row for an error: `"line 7"` or `"row 6"`.
RowName = Callable[[int], str]


def row_name(row: int) -> str:
    """Names a row of a table by its position, counted from zero."""
    return f"row {row}"


def factorize(
    values: np.ndarray | Sequence[Any],
    column: str,
    name_row: RowName = row_name,
) -> tuple[np.ndarray, np.ndarray]:
    """Codes the ids of a column in the order of their first appearance.

    Args:
        values: Ids, shape `(N,)`: integers, strings or anything hashable. An
            array of floats must hold whole numbers, which become integers.
        column: Name of the column, for errors.
        name_row: Names the place of a row, for errors.

    Returns:
        Tuple of the codes, shape `(N,)`, int64 from 0, and the ids they stand
        for, int64 if all are integers and an object array otherwise.

    Raises:
        ValueError: If an id is missing, not finite, beyond int64, or a float
            with a fraction or beyond 2^53.
        TypeError: If an id is not hashable.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        values = _integral_floats(values, column, name_row)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        _check_rows(
            values > INT64_MAX,
            values,
            column,
            name_row,
            "does not fit in int64",
        )
        ids, first, inverse = np.unique(
            values.astype(np.int64), return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank[inverse], ids[order]

    objects = values.tolist() if isinstance(values, np.ndarray) else values
    codes = np.empty(len(objects), dtype=np.int64)
    code_of: dict[Any, int] = {}
    for row, value in enumerate(objects):
        try:
            codes[row] = code_of.setdefault(value, len(code_of))
        except TypeError as error:
            raise TypeError(
                f"Ids must be hashable, but column {column!r} holds "
                f"{value!r:.80} in {name_row(row)}. Received: "
                f"type={type(value).__name__}"
            ) from error
    for value, code in code_of.items():
        problem = _problem(value)
        if problem:
            row = int(np.argmax(codes == code))
            raise _bad_id(value, column, name_row(row), problem)
    return codes, id_array(code_of)


def id_array(ids: Iterable[Any]) -> np.ndarray:
    """Ids as an int64 array if all are integers, else as an object array."""
    # NumPy's scalars become Python's, which JSON can hold.
    values = [x.item() if isinstance(x, np.generic) else x for x in ids]
    if values and all(type(value) is int for value in values):
        return np.array(values, dtype=np.int64)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def parse_text_ids(
    codes: np.ndarray, ids: np.ndarray, column: str, name_row: RowName
) -> np.ndarray:
    """Ids read from a text file as integers, where all are written as such.

    Text that an integer would not give back, such as `"007"`, stays text, and
    with it the whole column. So do floats, unless all are written as whole
    ones, `"7.0"`, as pandas writes the integers of a column with a gap.

    Args:
        codes: Code of each row, shape `(N,)`.
        ids: Distinct ids as text, shape `(U,)`.
        column: Name of the column, for errors.
        name_row: Names the place of a row, for errors.

    Returns:
        The ids, shape `(U,)`, int64 or an object array of strings.

    Raises:
        ValueError: If an id is empty, `nan` or beyond int64.
    """
    for code, text in enumerate(ids):
        if text == "" or text.lower() == "nan":
            row = int(np.argmax(codes == code))
            raise _bad_id(text, column, name_row(row), "is missing")
    if all(_WHOLE_FLOAT.fullmatch(text) for text in ids):
        ids = np.array([text[:-2] for text in ids], dtype=object)
    if not all(_INTEGER.fullmatch(text) for text in ids):
        return ids
    for code, text in enumerate(ids):
        if len(text) > 20 or not INT64_MIN <= int(text) <= INT64_MAX:
            row = int(np.argmax(codes == code))
            raise _bad_id(
                text[:40],
                column,
                name_row(row),
                "does not fit in int64 (a DataFrame may hold such ids as "
                "strings)",
            )
    return ids.astype(np.int64)


def _integral_floats(
    values: np.ndarray, column: str, name_row: RowName
) -> np.ndarray:
    _check_rows(np.isnan(values), values, column, name_row, "is missing")
    _check_rows(np.isinf(values), values, column, name_row, "is not finite")
    # Beyond 2^53 neighbouring integers share one float64.
    exact = np.abs(values) <= 2.0**53
    _check_rows(
        ~exact | (values != np.floor(values)),
        values,
        column,
        name_row,
        "is a float that stands for no integer (is it the right column? Ids "
        "of that kind may be strings)",
    )
    return values.astype(np.int64)


def _check_rows(
    bad: np.ndarray,
    values: np.ndarray,
    column: str,
    name_row: RowName,
    problem: str,
) -> None:
    if np.any(bad):
        row = int(np.argmax(bad))
        raise _bad_id(values[row].item(), column, name_row(row), problem)


def _problem(value: Any) -> str | None:
    if value is None:
        return "is missing"
    if isinstance(value, float) and value != value:
        return "is missing"
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return "does not fit in int64"
    return None


def _bad_id(value: Any, column: str, place: str, problem: str) -> ValueError:
    return ValueError(
        f"Every row needs an id in column {column!r}, but the one in {place} "
        f"{problem}. Received: {value!r:.80}"
    )


def check_codes(
    name: str,
    codes: np.ndarray,
    shape: tuple[int, ...],
    smallest: int,
    largest: int,
) -> None:
    """Checks type, shape and range of an array of codes.

    Args:
        name: Name of the argument, for errors.
        codes: The array.
        shape: Shape it must have.
        smallest: Smallest code allowed.
        largest: Largest code allowed.

    Raises:
        ValueError: If the array is not as described.
    """
    if codes.shape != shape or codes.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be integers of shape {shape}. Received: "
            f"{name}.shape={codes.shape}, {name}.dtype={codes.dtype}"
        )
    if codes.size and not (smallest <= codes.min() <= codes.max() <= largest):
        raise ValueError(
            f"`{name}` must lie in {smallest}..{largest}. Received: {name} "
            f"from {codes.min()} to {codes.max()}"
        )
