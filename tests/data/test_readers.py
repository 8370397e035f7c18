import gzip
from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import read_interactions

# In time order: ann 5 7 5, bob 7.
ROWS = [("ann", 7, 20), ("ann", 5, 10), ("bob", 7, 15), ("ann", 5, 30)]
EXPECTED = {"ann": [5, 7, 5], "bob": [7]}


def delimited(rows, delimiter=",", header=("user", "item", "time")):
    rows = rows if header is None else [header, *rows]
    return "\n".join(delimiter.join(map(str, row)) for row in rows) + "\n"


def read(tmp_path: Path, text: str | bytes, name="data.csv", **arguments):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_interactions(path, **arguments)


def histories(interactions):
    """Original ids of each user's items by the user's original id."""
    return {
        user: interactions.decode(codes).tolist()
        for user, codes in zip(
            interactions.user_ids.tolist(),
            interactions.sequences(),
            strict=True,
        )
    }


@pytest.mark.parametrize(
    ("name", "delimiter"), [("data.csv", ","), ("data.tsv", "\t")]
)
def test_delimited_files(tmp_path, name, delimiter):
    text = delimited(ROWS, delimiter)
    interactions = read(tmp_path, text, name)
    assert histories(interactions) == EXPECTED
    assert interactions.timestamps.tolist() == [10, 20, 30, 15]
    assert interactions.timestamps.dtype == np.int64
    assert interactions.item_ids.dtype == np.int64
    compressed = gzip.compress(text.encode())
    assert histories(read(tmp_path, compressed, name + ".gz")) == EXPECTED


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n" + text.replace("\n", "\n\n"),
        lambda text: text.replace(",", ", "),
        lambda text: text.replace("ann", '"ann"'),
        str.rstrip,
    ],
    ids=["bom", "crlf", "blank", "space", "quotes", "no-last-newline"],
)
def test_ways_to_write_the_same_table(tmp_path, change):
    text = change(delimited(ROWS))
    assert histories(read(tmp_path, text)) == EXPECTED


def test_columns_in_any_order_and_more_of_them(tmp_path):
    text = delimited(
        [(time, "x", item, user) for user, item, time in ROWS],
        header=("when", "extra", "asin", "who"),
    )
    interactions = read(
        tmp_path,
        text,
        user_column="who",
        item_column="asin",
        time_column="when",
    )
    assert histories(interactions) == EXPECTED


def test_without_a_header_columns_are_positions(tmp_path):
    numbers = [({"ann": 1, "bob": 2}[u], i, t) for u, i, t in ROWS]
    text = delimited(numbers, header=None)
    assert histories(read(tmp_path, text)) == {1: [5, 7, 5], 2: [7]}
    text = delimited([(t, i, u) for u, i, t in ROWS], header=None)
    interactions = read(
        tmp_path,
        text,
        header=False,
        user_column=2,
        item_column=1,
        time_column=0,
    )
    assert histories(interactions) == EXPECTED


def test_a_header_cannot_be_guessed_from_names_alone(tmp_path):
    text = delimited(ROWS, header=None)
    with pytest.raises(ValueError, match=r"first row \['ann', '7', '20'\]"):
        read(tmp_path, text)
    assert histories(read(tmp_path, text, header=False)) == EXPECTED


def test_order_of_the_rows_is_time_without_times(tmp_path):
    interactions = read(tmp_path, delimited(ROWS), time_column=None)
    assert histories(interactions) == {"ann": [7, 5, 5], "bob": [7]}
    assert interactions.timestamps is None


def test_tied_times_keep_the_order_of_the_rows(tmp_path):
    rows = [("u", item, 1) for item in (9, 3, 7, 1)] + [("u", 5, 0)]
    interactions = read(tmp_path, delimited(rows))
    assert histories(interactions) == {"u": [5, 9, 3, 7, 1]}


def test_ids_stay_text_unless_all_are_integers(tmp_path):
    rows = [("007", "-3", 1), ("7", "12", 2)]
    interactions = read(tmp_path, delimited(rows))
    assert histories(interactions) == {"007": [-3], "7": [12]}


def test_fractional_times(tmp_path):
    rows = [("u", 1, 2.5), ("u", 2, -1), ("u", 3, "1e0")]
    interactions = read(tmp_path, delimited(rows))
    assert histories(interactions) == {"u": [2, 3, 1]}
    assert interactions.timestamps.dtype == np.float64
    assert interactions.timestamps.tolist() == [-1.0, 1.0, 2.5]


DUPLICATES = [("u", 1, 5), ("v", 1, 5), ("u", 2, 4), ("u", 1, 5), ("u", 1, 6)]


@pytest.mark.parametrize(
    "times, seconds",
    [
        (["1970-01-02", "1970-01-01"], [0, 86_400]),
        (["1970-01-01T00:00:09", " 1970-01-01 00:00:08"], [8, 9]),
        (["1970-01-01T02:00:00+02:00", "1969-12-31T23:59:59Z"], [-1, 0]),
        (["1970-01-01T00:00:01.5", "1970-01-01T00:00:01"], [1.0, 1.5]),
        # Numbers, as they were before.
        (["20260102", "20260101"], [20260101, 20260102]),
        (["1e-5", "-3"], [-3.0, 1e-5]),
    ],
)
def test_datetimes_as_text(tmp_path, times, seconds):
    rows = [("u", item, time) for item, time in enumerate(times)]
    interactions = read(tmp_path, delimited(rows))
    assert interactions.timestamps.tolist() == seconds
    assert histories(interactions) == {"u": [1, 0]}


@pytest.mark.parametrize(
    "times, message",
    [
        (["2026-01-01", "2026-13-01"], "line 3. Received: '2026-13-01'"),
        (["2026-01-01", "5"], "line 3. Received: '5'"),
        (["2026-01-01Z", "2026-01-01T03"], "line 2. Received: '2026-01-01Z'"),
        (["2026-01-01T03+01", "2026-01-01T03"], "zone, or none.*line 3"),
        (["5", "2026-01-01"], "line 3. Received: '2026-01-01'"),
    ],
)
def test_times_that_are_no_datetimes_are_refused(tmp_path, times, message):
    rows = [("u", item, time) for item, time in enumerate(times)]
    with pytest.raises(ValueError, match=message):
        read(tmp_path, delimited(rows))


@pytest.mark.parametrize(
    "items, ids",
    [
        (["7.0", "-5.0", "0.0"], [7, -5, 0]),
        (["7.0", "5", "6.0"], ["7.0", "5", "6.0"]),
        (["7.5", "5.0", "6.0"], ["7.5", "5.0", "6.0"]),
        (["07.0", "5.0", "6.0"], ["07.0", "5.0", "6.0"]),
    ],
)
def test_ids_that_are_all_whole_floats_are_integers(tmp_path, items, ids):
    rows = [("u", item, time) for time, item in enumerate(items)]
    assert read(tmp_path, delimited(rows)).item_ids.tolist() == ids


def test_duplicates_are_kept_and_counted(tmp_path):
    interactions = read(tmp_path, delimited(DUPLICATES))
    assert histories(interactions) == {"u": [2, 1, 1, 1], "v": [1]}
    assert interactions.num_duplicates == 1


def test_duplicates_are_dropped_when_asked(tmp_path):
    interactions = read(tmp_path, delimited(DUPLICATES), duplicates="drop")
    assert histories(interactions) == {"u": [2, 1, 1], "v": [1]}
    assert interactions.num_duplicates == 0


def test_duplicates_raise_when_asked(tmp_path):
    with pytest.raises(ValueError, match="1 rows repeat.*first is line 5"):
        read(tmp_path, delimited(DUPLICATES), duplicates="raise")
    unique = read(tmp_path, delimited(DUPLICATES[:3]), duplicates="raise")
    assert unique.num_interactions == 3
    with pytest.raises(ValueError, match="`time_column` is None"):
        read(
            tmp_path,
            delimited(DUPLICATES),
            duplicates="drop",
            time_column=None,
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file is empty"),
        ("\ufeff", "file is empty"),
        ("user,item,time\n", "a header and no row"),
        ("user,item\n1,2\n", r"no column 'time'.*\['user', 'item'\].*None"),
        ("user,sku,time\n1,2,3\n", r"no column 'item'.*'sku', 'time'\]"),
        ("1,2\n", r"no column 2 for `time_column`.*\[0, 1\]"),
        ("user,user,time\n1,2,3\n", "names of their own"),
        ("user,item,time\n1,2,3\n\n4,5\n", r"Line 4.*2 fields.*3 in '4,5'"),
        ('user,item,time\n1,"2"x,3\n', "Line 2 is malformed"),
        ("user,item,time\n1,2,3\n,2,3\n", "'user'.*line 3 is missing"),
        ("user,item,time\n1,2,3\n1,NaN,3\n", "'item'.*line 3 is missing"),
        (
            "user,item,time\n1,2,3\n1,9223372036854775808,3\n",
            "line 3 does not fit in int64.*'9223372036854775808'",
        ),
        (
            "user,item,time\n1," + "9" * 5000 + ",3\n",
            "line 2 does not fit in int64",
        ),
        ("user,item,time\n1,2,nan\n", "'time'.*line 2. Received: 'nan'"),
        ("user,item,time\n1,2,3\n1,2,inf\n", "line 3. Received: 'inf'"),
        ("user,item,time\n1,2,\n", "line 2. Received: ''"),
        ("user,item,time\n1,2,2014-15-05\n", "Received: '2014-15-05'"),
        (
            "user,item,time\n1,2,3\n1,2,9223372036854775808\n",
            "line 3. Received: 9223372036854775808",
        ),
    ],
)
def test_malformed_tables_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_line_numbers_count_lines_of_the_file(tmp_path):
    text = 'user,item,time\n"a\nb",2,3\n\n1,2,x\n'
    with pytest.raises(ValueError, match="line 5. Received: 'x'"):
        read(tmp_path, text)


def test_text_must_be_utf_8(tmp_path):
    with pytest.raises(ValueError, match="must be UTF-8"):
        read(tmp_path, delimited([("é", 1, 2)]).encode("latin-1"))


def test_format_overrides_the_suffix(tmp_path):
    text = delimited(ROWS, "\t")
    interactions = read(tmp_path, text, "data.dat", format="tsv")
    assert histories(interactions) == EXPECTED
    with pytest.raises(ValueError, match="does not end in one of"):
        read(tmp_path, text, "data.dat.gz")
    with pytest.raises(ValueError, match="format='json'"):
        read(tmp_path, text, format="json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"duplicates": "first"}, "`duplicates` must be"),
        ({"header": "yes"}, "`header` must be"),
        ({"user_column": None}, "`user_column` is needed"),
    ],
)
def test_arguments_are_checked(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, delimited(ROWS), **arguments)


@pytest.mark.parametrize("source", [None, 3, [(1, 2)], {"user": [1]}])
def test_source_must_be_a_path_or_data_frame(source):
    with pytest.raises(TypeError, match="`source` must be a path"):
        read_interactions(source)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_interactions(tmp_path / "none.csv")
