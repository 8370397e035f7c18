"""Reading interactions from a file or a DataFrame."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft.data._coding import repeated_rows
from keras_bft.data._ids import factorize
from keras_bft.data._ids import parse_text_ids
from keras_bft.data._times import parse_times
from keras_bft.data.interactions import Interactions
from keras_bft.data.line_files import read_line_file
from keras_bft.data.tables import Column
from keras_bft.data.tables import Table
from keras_bft.data.tables import delimited_table
from keras_bft.data.tables import frame_table
from keras_bft.data.tables import is_data_frame
from keras_bft.data.tables import parquet_table

_FORMATS = {
    ".txt": "lines",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_Columns = tuple[Column | None, Column | None, Column | None]


def read_interactions(
    source: Any,
    *,
    format: str | None = None,
    header: bool | str = "auto",
    user_column: Column = "user",
    item_column: Column = "item",
    time_column: Column | None = "time",
    duplicates: str = "keep",
) -> Interactions:
    """Reads interactions from a file or a DataFrame.

    Line files have one user a line, `user item item ...`, oldest item first,
    with integer ids from 1; a line with a user alone is a user without
    interactions and is kept. Tables have one interaction a row, in any order,
    with ids of any kind. Rows of one user with the same time keep the order of
    the table.

    In a CSV or TSV file a column of ids is read as integers if every id is
    written as one (`7`, or all `7.0`); ids such as `007` keep the whole column
    text. In a DataFrame floats must be whole and become integers. Blank lines
    are skipped. Other columns are left alone. A table of tens of millions of
    rows is read fastest with polars, whose DataFrame can be passed here.

    Args:
        source: Path of a file, or a pandas or polars DataFrame. `.gz` after the
            suffix of a text file means that it is compressed.
        format: `"lines"`, `"csv"`, `"tsv"` or `"parquet"`. By default the
            suffix tells: `.txt`, `.csv`, `.tsv` or `.parquet`.
        header: Whether the first row of a CSV or TSV file names the columns.
            `"auto"`: it does if it holds one of the three columns' names, and
            does not if all its fields are numbers.
        user_column: Name of the column of users or, without a header, its
            position from 0.
        item_column: The same for items.
        time_column: The same for times: numbers in any unit, or datetimes (in
            text as in ISO 8601, `2026-11-29T08:30:00Z`), which become seconds
            since 1970, with a fraction if one has one. `None` takes the order
            of the rows for time. Without a header the default names stand
            for positions 0, 1 and 2. Line files have no columns.
        duplicates: What to do with rows that repeat user, item and time of an
            earlier row: `"keep"` them (`Interactions.num_duplicates` counts
            them), `"drop"` them or `"raise"`. Without times a repeated item is
            a repeated visit, and only `"keep"` is possible.

    Returns:
        The interactions, coded, with their original ids.

    Raises:
        ValueError: If a line or row is malformed, an id or time is missing, not
            finite or beyond int64, a column is missing, a user has two lines, a
            file is empty or damaged, or an argument is not one of its values.
            The message names the place. If a `.gz` file unpacks to more than
            two hundred times its size (and 64 MiB).
        TypeError: If `source` is neither a path nor a DataFrame.
        ImportError: If a Parquet file is to be read and neither pandas with
            pyarrow nor polars is installed.

    Examples:

    >>> import tempfile, pathlib
    >>> from keras_bft.data import read_interactions
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> rows = ["user,item,time", "ann,7,20", "ann,5,10", "bob,7,15"]
    >>> _ = path.write_text(chr(10).join(rows))
    >>> interactions = read_interactions(path)
    >>> interactions
    Interactions(num_users=2, num_items=2, num_interactions=3)
    >>> [interactions.decode(codes) for codes in interactions.sequences()]
    [array([5, 7]), array([7])]
    """
    if duplicates not in ("keep", "drop", "raise"):
        raise ValueError(
            "`duplicates` must be 'keep', 'drop' or 'raise'. Received: "
            f"duplicates={duplicates!r}"
        )
    if header not in (True, False, "auto"):
        raise ValueError(
            "`header` must be True, False or 'auto'. Received: "
            f"header={header!r}"
        )
    columns: _Columns = (user_column, item_column, time_column)
    if is_data_frame(source):
        return _from_table(frame_table(source), columns, duplicates)
    if not isinstance(source, str | PathLike):
        raise TypeError(
            "`source` must be a path or a pandas or polars DataFrame (collect "
            f"a LazyFrame first). Received: type={type(source).__name__}"
        )
    path = Path(source)
    format = _format(path, format)
    if format == "lines":
        _check_can_compare_times(duplicates, "a line file has no times")
        return read_line_file(path)
    if format == "parquet":
        table = parquet_table(path)
    else:
        names = [name for name in columns if isinstance(name, str)]
        delimiter = "," if format == "csv" else "\t"
        table = delimited_table(path, delimiter, header, names)
        if 0 in table.columns:
            columns = _positions(columns)
    return _from_table(table, columns, duplicates)


def _format(path: Path, format: str | None) -> str:
    formats = sorted(_FORMATS.values())
    if format is None:
        suffixes = path.suffixes
        if suffixes and suffixes[-1].lower() == ".gz":
            suffixes = suffixes[:-1]
        format = _FORMATS.get(suffixes[-1].lower() if suffixes else "")
        if format is None:
            raise ValueError(
                f"The name of the file does not end in one of "
                f"{list(_FORMATS)}, so pass `format`, one of {formats}. "
                f"Received: source={str(path)!r}"
            )
    if format not in formats:
        raise ValueError(
            f"`format` must be one of {formats}. Received: format={format!r}"
        )
    return format


def _positions(columns: _Columns) -> _Columns:
    position: dict[Column | None, Column] = {"user": 0, "item": 1, "time": 2}
    user, item, time = (position.get(name, name) for name in columns)
    return user, item, time


def _check_can_compare_times(duplicates: str, reason: str) -> None:
    if duplicates != "keep":
        raise ValueError(
            "Duplicates are rows with the same user, item and time, but "
            f"{reason}: a repeated item is a repeated visit. Pass "
            f"duplicates='keep'. Received: duplicates={duplicates!r}"
        )


def _from_table(
    table: Table, columns: _Columns, duplicates: str
) -> Interactions:
    user_column, item_column, time_column = columns
    user_codes, user_ids = _ids(table, user_column, "user_column")
    item_codes, item_ids = _ids(table, item_column, "item_column")
    if len(user_codes) == 0:
        raise ValueError("The table has no row. Received: an empty table.")
    if time_column is None:
        _check_can_compare_times(duplicates, "`time_column` is None")
        times = None
    else:
        values = table.column(time_column, "time_column")
        times = parse_times(values, str(time_column), table.name_row)
        if duplicates != "keep":
            repeated = repeated_rows(user_codes, item_codes, times)
            if duplicates == "raise" and repeated.any():
                place = table.name_row(int(np.argmax(repeated)))
                raise ValueError(
                    f"{int(repeated.sum())} rows repeat user, item and time of "
                    f"an earlier row; the first is {place}. Received: "
                    "duplicates='raise'"
                )
            user_codes = user_codes[~repeated]
            item_codes = item_codes[~repeated]
            times = times[~repeated]
    return Interactions.from_rows(
        user_codes, item_codes + 1, times, user_ids, item_ids
    )


def _ids(
    table: Table, column: Column | None, argument: str
) -> tuple[np.ndarray, np.ndarray]:
    if column is None:
        raise ValueError(f"`{argument}` is needed. Received: {argument}=None")
    values = table.column(column, argument)
    codes, ids = factorize(values, str(column), table.name_row)
    if table.is_text:
        ids = parse_text_ids(codes, ids, str(column), table.name_row)
    return codes, ids
