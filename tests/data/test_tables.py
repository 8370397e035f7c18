import sys

import numpy as np
import pytest

from keras_bft.data import read_interactions
from tests.data.test_readers import EXPECTED
from tests.data.test_readers import ROWS
from tests.data.test_readers import histories

NAMES = ("user", "item", "time")


@pytest.fixture(params=["pandas", "polars"])
def frame(request):
    """Makes a DataFrame of a mapping from names to lists."""
    return pytest.importorskip(request.param).DataFrame


def columns(rows=ROWS):
    return dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))


def test_data_frames(frame):
    interactions = read_interactions(frame(columns()))
    assert histories(interactions) == EXPECTED
    assert interactions.timestamps.tolist() == [10, 20, 30, 15]


def test_ids_of_a_frame_keep_their_type(frame):
    rows = [("7", -5, 1), ("8", 2**62, 2)]
    interactions = read_interactions(frame(columns(rows)))
    assert histories(interactions) == {"7": [-5], "8": [2**62]}


def test_whole_floats_are_integers(frame):
    rows = [(1.0, 5, 1), (2.0, 4, 2)]
    interactions = read_interactions(frame(columns(rows)))
    assert histories(interactions) == {1: [5], 2: [4]}
    assert interactions.user_ids.dtype == np.int64


@pytest.mark.parametrize("value", [3.5, -0.5, 2.0**60])
def test_other_floats_are_no_ids(frame, value):
    rows = [("u", 4.0, 1), ("v", value, 2)]
    with pytest.raises(ValueError, match="'item'.*row 1 is a float .*Received"):
        read_interactions(frame(columns(rows)))


def test_datetimes_become_seconds_that_sort(frame):
    table = columns([("u", 1, 0), ("u", 2, 0), ("u", 3, 0)])
    table["time"] = np.array(
        ["2014-01-05", "2013-01-05T10", "2014-01-04T23:59:59"],
        dtype="datetime64[us]",
    )
    interactions = read_interactions(frame(table))
    assert histories(interactions) == {"u": [2, 3, 1]}
    day = 86_400
    expected = [15_710 * day + 36_000, 16_075 * day - 1, 16_075 * day]
    assert interactions.timestamps.tolist() == expected
    assert interactions.timestamps.dtype == np.int64


def test_fractions_of_a_second_are_kept(frame):
    table = columns([("u", 1, 0), ("u", 2, 0)])
    times = ["1970-01-01T00:00:01.25", "1970-01-01T00:00:01"]
    table["time"] = np.array(times, dtype="datetime64[ns]")
    interactions = read_interactions(frame(table))
    assert histories(interactions) == {"u": [2, 1]}
    assert interactions.timestamps.tolist() == [1.0, 1.25]


def test_datetimes_as_objects(frame):
    table = columns([("u", 1, 0), ("u", 2, 0)])
    table["time"] = ["1970-01-02", "1970-01-01 00:01"]
    interactions = read_interactions(frame(table))
    assert histories(interactions) == {"u": [2, 1]}
    assert interactions.timestamps.tolist() == [60, 86_400]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("user", ["a", None], "1 rows have no value in column 'user'.*row 1"),
        ("item", [None, 3], "1 rows have no value in column 'item'.*row 0"),
        ("time", [1, None], "1 rows have no value in column 'time'.*row 1"),
        ("time", [1.0, float("nan")], "row 1"),
        ("time", [float("inf"), 1.0], "row 0. Received: .*inf"),
        ("time", ["monday", "friday"], "row 0. Received: 'monday'"),
        ("item", [float("inf"), 1.0], "row 0 is not finite"),
        ("item", [1, 2**63], "row 1 does not fit in int64"),
    ],
)
def test_values_that_cannot_be_used_are_refused(frame, column, values, message):
    table = columns(ROWS[:2]) | {column: values}
    with pytest.raises(ValueError, match=message):
        read_interactions(frame(table))


def test_missing_columns_list_those_there_are(frame):
    with pytest.raises(ValueError, match=r"'sku'.*\['user', 'item', 'time'\]"):
        read_interactions(frame(columns()), item_column="sku")


def test_empty_frame(frame):
    with pytest.raises(ValueError, match="The table has no row"):
        read_interactions(frame({name: [] for name in NAMES}))


def test_parquet(frame, tmp_path):
    pytest.importorskip("pyarrow")
    table = frame(columns())
    write = getattr(table, "to_parquet", None) or table.write_parquet
    write(tmp_path / "data.parquet")
    interactions = read_interactions(tmp_path / "data.parquet")
    assert histories(interactions) == EXPECTED


def test_parquet_with_polars_alone(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    polars.DataFrame(columns()).write_parquet(tmp_path / "data.parquet")
    # An entry of None stands for a package that is not installed.
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    interactions = read_interactions(tmp_path / "data.parquet")
    assert histories(interactions) == EXPECTED


def test_parquet_names_the_extra(tmp_path, monkeypatch):
    for name in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"keras-bft\[data\]"):
        read_interactions(tmp_path / "data.parquet")


def test_pandas_dtypes_with_missing_values_and_time_zones():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns([("u", 1, 1), ("u", 2, 0)]))
    frame["item"] = frame["item"].astype("Int64")
    frame["user"] = frame["user"].astype("category")
    frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
    interactions = read_interactions(frame)
    assert histories(interactions) == {"u": [2, 1]}
    assert interactions.item_ids.dtype == np.int64
    frame.loc[1, "item"] = pandas.NA
    with pytest.raises(ValueError, match="no value in column 'item'"):
        read_interactions(frame)


def test_pandas_objects_as_ids():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns([("u", 1, 1), ("v", 1, 0)]))
    frame["item"] = [("a", 1), ("b", 2)]
    interactions = read_interactions(frame)
    assert histories(interactions) == {"u": [("a", 1)], "v": [("b", 2)]}
    frame["item"] = [["a"], ["b"]]
    with pytest.raises(TypeError, match=r"hashable.*\['a'\] in row 0"):
        read_interactions(frame)


def test_pandas_columns_need_names_of_their_own():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["user", "item", "item"])
    with pytest.raises(ValueError, match="names of their own"):
        read_interactions(frame)
