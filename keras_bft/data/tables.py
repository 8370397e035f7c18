"""Tables with one interaction a row: DataFrames, Parquet, CSV and TSV."""

import csv
import io
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft._extras import import_extra
from keras_bft.data._files import read_bytes
from keras_bft.data._ids import RowName
from keras_bft.data._ids import row_name

Column = str | int


@dataclass(frozen=True)
class Table:
    """Columns of a table, before their values have been looked at.

    Args:
        columns: Values of each column by name or, in a table without a header,
            by position.
        is_text: Whether the values are text of a delimited file, still to be
            read as numbers.
        name_row: Names the place of a row, for errors.
    """

    columns: Mapping[Column, Any]
    is_text: bool = False
    name_row: RowName = row_name

    def column(self, name: Column, argument: str) -> Any:
        """Values of one column.

        Args:
            name: Name or position of the column.
            argument: Argument that named it, for errors.

        Returns:
            NumPy array or list of text, shape `(N,)`, nothing missing.

        Raises:
            ValueError: If there is no such column or it lacks values.
        """
        if name not in self.columns:
            hint = ""
            if argument == "time_column":
                hint = " Pass None to take the order of the rows for time."
            raise ValueError(
                f"The table has no column {name!r} for `{argument}`. Its "
                f"columns are {_shown(self.columns)}.{hint} Received: "
                f"{argument}={name!r}"
            )
        values = self.columns[name]
        if self.is_text:
            return values
        missing = np.asarray(
            values.isna() if hasattr(values, "isna") else values.is_null()
        )
        if missing.any():
            raise ValueError(
                f"{int(missing.sum())} rows have no value in column {name!r}, "
                f"the first is {self.name_row(int(np.argmax(missing)))}. Drop "
                f"them or fill them in. Received: {argument}={name!r}"
            )
        if getattr(values.dtype, "tz", None) is not None:
            values = values.dt.tz_convert(None)
        return values.to_numpy()


class _Fields(Mapping[Column, list[str]]):
    """Columns of one flat list of fields, each taken out when asked for."""

    def __init__(self, keys: Sequence[Column], fields: list[str]) -> None:
        self._places = {key: place for place, key in enumerate(keys)}
        self._fields = fields

    def __getitem__(self, key: Column) -> list[str]:
        return self._fields[self._places[key] :: len(self._places)]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[Column]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def is_data_frame(source: Any) -> bool:
    """Whether an object is a pandas or polars DataFrame."""
    # Looked at by name: neither package is imported for a user of the other.
    kind = type(source)
    package = kind.__module__.split(".")[0]
    return package in ("pandas", "polars") and kind.__name__ == "DataFrame"


def frame_table(frame: Any) -> Table:
    """Columns of a pandas or polars DataFrame.

    Args:
        frame: The DataFrame. Columns which share a name are refused.

    Returns:
        The table.

    Raises:
        ValueError: If two columns have one name.
    """
    names = list(frame.columns)
    if len(set(names)) < len(names):
        raise ValueError(
            "Columns need names of their own. Received: "
            f"columns={_shown(names)}"
        )
    return Table({name: frame[name] for name in names})


def parquet_table(path: Path) -> Table:
    """Columns of a Parquet file, read with pandas or with polars.

    Args:
        path: File to read.

    Returns:
        The table.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If neither pandas with pyarrow nor polars is installed.
        ValueError: If the file is no whole Parquet file.
    """
    if find_spec("polars") and not find_spec("pyarrow"):
        package = import_extra("polars", "data")
    else:
        import_extra("pyarrow", "data")
        package = import_extra("pandas", "data")
    try:
        frame = package.read_parquet(path)
    except FileNotFoundError:
        raise
    except Exception as error:
        # Each of the packages has errors of its own.
        raise ValueError(
            f"The file is not a whole Parquet file ({error!s:.200}). Received: "
            f"source={str(path)!r}"
        ) from error
    return frame_table(frame)


def delimited_table(
    path: Path, delimiter: str, header: bool | str, names: Sequence[Column]
) -> Table:
    """Columns of a CSV or TSV file as text.

    Args:
        path: File to read, compressed if its name ends in `.gz`.
        delimiter: Character between two fields.
        header: Whether the first row names the columns. `"auto"`: it does if
            one of `names` is in it, it does not if all its fields are numbers,
            and anything else is an error.
        names: Names that a header would have.

    Returns:
        The table.

    Raises:
        ValueError: If the file is not UTF-8, its rows differ in length, it has
            no row, or `"auto"` cannot tell whether there is a header.
    """
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The file must be UTF-8 text: {error}. Received: "
            f"source={str(path)!r}"
        ) from error
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    # One flat list, not a list of rows: a million small lists would keep the
    # garbage collector busy for longer than the parsing takes.
    fields: list[str] = []
    lines: list[int] = []
    width = 0
    try:
        for row in reader:
            if not row:
                continue
            width = width or len(row)
            if len(row) != width:
                raise csv.Error(
                    f"{len(row)} fields instead of the first line's {width} in "
                    f"{delimiter.join(row[:80])[:80]!r}"
                )
            fields.extend(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(
            f"Line {reader.line_num} is malformed: {error}. Received: "
            f"source={str(path)!r}"
        ) from error
    if header == "auto":
        header = _has_header(fields[:width], names, path)
    keys: list[Column] = list(range(width))
    if header:
        keys = list(fields[:width])
        if len(set(keys)) < width:
            raise ValueError(
                "Columns need names of their own. Received: "
                f"source={str(path)!r} with columns {_shown(keys)}"
            )
        del fields[:width], lines[0]
    if not lines:
        raise ValueError(
            "The file holds no interactions: it has a header and no row. "
            f"Received: source={str(path)!r}"
        )
    return Table(
        columns=_Fields(keys, fields),
        is_text=True,
        name_row=lambda row: f"line {lines[row]}",
    )


def _shown(names: Iterable[Column]) -> str:
    """The first names of columns, as a list."""
    shown = [f"{name!r:.80}" for name in islice(names, 11)]
    return f"[{', '.join(shown[:10] + ['...'] * (len(shown) > 10))}]"


def _has_header(row: list[str], names: Sequence[Column], path: Path) -> bool:
    if any(name in row for name in names):
        return True
    try:
        for field in row:
            float(field)
    except ValueError as error:
        raise ValueError(
            f"The first row {_shown(row)} has none of the columns "
            f"{_shown(names)} in it and is not all numbers either. Name its "
            "columns with `user_column`, `item_column` and `time_column`, or "
            "pass `header=False` if it is data. Received: "
            f"source={str(path)!r}, header='auto'"
        ) from error
    return False
