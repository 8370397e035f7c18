"""Files of interactions and questions that are damaged or made to harm."""

import gzip
import json

import numpy as np
import pytest

from keras_bft.data import Interactions
from keras_bft.data import read_interactions
from keras_bft.data import read_questions
from tests.data.test_readers import histories

pytestmark = pytest.mark.any_backend

HEADER = "user,item,time\n"


def read(tmp_path, content, name="data.csv", **arguments):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_interactions(path, **arguments)


def test_a_table_as_spreadsheets_write_it(tmp_path):
    text = (
        'user,item,time\r\n"Miller, Ann","say ""tea""",2\r\n'
        '"Miller, Ann","two\r\nlines",1\r\nß,1000000000,3\r\n'
    )
    interactions = read(tmp_path, b"\xef\xbb\xbf" + text.encode())
    assert histories(interactions) == {
        "Miller, Ann": ["two\r\nlines", 'say "tea"'],
        "ß": ["1000000000"],
    }


def test_ids_of_a_billion_take_no_more_room_than_others(tmp_path):
    rows = HEADER + "1000000000,999999999,1\n-1000000000,1000000001,2\n"
    interactions = read(tmp_path, rows)
    assert interactions.num_items == interactions.num_users == 2
    assert histories(interactions) == {
        10**9: [999999999],
        -(10**9): [1000000001],
    }


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a\0b,1,2\n", 2),
        ("1,2,3\n\0\0\0\0", 3),
        ("1,2,3\n1,2\0,3\n", 3),
    ],
)
def test_nul_bytes_are_no_text(tmp_path, content, line):
    with pytest.raises(ValueError, match=f"line {line} has a NUL byte"):
        read(tmp_path, HEADER + content)
    (tmp_path / "q.jsonl").write_text(HEADER + content)
    with pytest.raises(
        ValueError, match=f"line {line} has a NUL .*path='.*q.j"
    ):
        read_questions(tmp_path / "q.jsonl")


def test_nul_bytes_at_the_end_of_a_line_file(tmp_path):
    with pytest.raises(ValueError, match="line 2 has a NUL byte"):
        read(tmp_path, "1 2\n3 4\0\0\n", "data.txt")


@pytest.mark.parametrize("time", ["1_000", "nan", "-inf", "1e999", "9" * 5000])
def test_times_that_are_no_numbers_for_others_either(tmp_path, time):
    with pytest.raises(ValueError, match="finite numbers.*line 3") as raised:
        read(tmp_path, f"{HEADER}1,2,3\n4,5,{time}\n")
    assert len(str(raised.value)) < 400


def test_a_million_columns(tmp_path):
    names = ",".join(f"c{place}" for place in range(1_000_000))
    values = "1," * 1_000_000
    table = read(tmp_path, f"{names},user,item,time\n{values}7,8,9\n")
    assert histories(table) == {7: [8]}
    with pytest.raises(ValueError, match="none of the columns") as raised:
        read(tmp_path, f"{names}\n{values[:-1]}\n")
    assert len(str(raised.value)) < 1000
    with pytest.raises(
        ValueError, match="no column 'user'.*'c9', ..."
    ) as error:
        read(tmp_path, f"{names}\n{values[:-1]}\n", header=True)
    assert len(str(error.value)) < 1000


def test_a_field_without_end(tmp_path):
    with pytest.raises(ValueError, match="larger than field limit"):
        read(tmp_path, HEADER + '"1,2,3\n' + "1,2,3\n" * 100_000)


@pytest.mark.parametrize("name", ["data.csv.gz", "data.txt.gz", "q.jsonl.gz"])
def test_bombs(tmp_path, name):
    content = gzip.compress(b"1 " * 34_000_000)
    reader = read_questions if name[0] == "q" else read_interactions
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="over 67108864 bytes.*(data|q)"):
        reader(tmp_path / name)
    (tmp_path / name).write_bytes(gzip.compress(b"1 2 3")[:-9])
    with pytest.raises(ValueError, match="whole gzip file"):
        reader(tmp_path / name)
    (tmp_path / name).write_bytes(b"PK\3\4")
    with pytest.raises(ValueError, match="whole gzip file"):
        reader(tmp_path / name)


def test_parquet_that_is_none(tmp_path):
    pytest.importorskip("pyarrow")
    for content in (b"", b"PAR1", b"PAR1junkPAR1", b"a,b\n1,2\n"):
        with pytest.raises(ValueError, match="whole Parquet .*data.parquet"):
            read(tmp_path, content, "data.parquet")
    with pytest.raises(FileNotFoundError):
        read_interactions(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 99999, "line 1 is no JSON"),
        ('{"data": ' * 99999, "line 1 is no JSON"),
        ('{"question": ' + "9" * 9999 + "}", "line 1 is no JSON"),
        (
            '{"question": "\\ud800", "context": "b", "answer": "c"}',
            "`question` must be Unicode text",
        ),
        ('{"data": [3]}', r"data\[0\]: `the entry` must be of type dict"),
        (
            json.dumps({f"k{number}": 0 for number in range(100_000)}),
            "no `question`",
        ),
    ],
)
def test_questions_that_are_none(tmp_path, content, message):
    path = tmp_path / "q.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_questions(path)
    assert str(path) in str(raised.value)
    assert len(str(raised.value)) < 1000


def make_interactions():
    return Interactions(
        user_codes=np.array([0, 0, 1]),
        item_codes=np.array([1, 2, 1]),
        timestamps=np.array([5, 6, 1]),
        user_ids=np.array([17, 4]),
        item_ids=np.array(["tea", "milk"], dtype=object),
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"user_codes": None}, r"without \['user_codes'\]"),
        ({"user_codes": [1, 0, 1]}, "must be sorted"),
        ({"user_codes": np.array([1, 0, 1], "uint8")}, "must be sorted"),
        ({"user_codes": [[0], [0], [1]]}, "integers of shape"),
        ({"user_codes": 3}, "integers of shape"),
        ({"user_codes": [0, 0, 2]}, r"lie in 0\.\.1"),
        ({"item_codes": [1, 2, 0]}, r"lie in 1\.\.2"),
        ({"item_codes": [1, 2]}, "integers of shape"),
        ({"timestamps": ["a", "b", "c"]}, "a number"),
        ({"timestamps": [True, True, True]}, "a number"),
        ({"timestamps": [1.0, np.nan, 2.0]}, r"finite.*timestamps\[1\]=nan"),
        ({"timestamps": [2, 1, 3]}, r"not fall.*timestamps\[0:2\]=\[2 1\]"),
        ({"timestamps": np.array([2, 1, 3], "uint8")}, "not fall"),
        ({"timestamps": np.array([None] * 3)}, "pickled objects"),
    ],
)
def test_arrays_that_were_not_saved_like_this(tmp_path, changed, message):
    interactions = make_interactions()
    interactions.save(tmp_path)
    names = ("user_codes", "item_codes", "timestamps")
    arrays = {name: getattr(interactions, name) for name in names} | changed
    np.savez(
        tmp_path / "interactions.npz",
        allow_pickle=True,
        **{name: x for name, x in arrays.items() if x is not None},
    )
    with pytest.raises(ValueError, match=message):
        Interactions.load(tmp_path)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({}, r"without \['item_ids', 'user_ids'\]"),
        ({"user_ids": 3}, "`user_ids` must be a list .* with 3"),
        ({"user_ids": {"a": 1, "b": 2}}, "`user_ids` must be a list"),
        ({"user_ids": [[1], 2]}, r"with \[1\]"),
        ({"user_ids": [None, 2]}, "with None"),
        ({"user_ids": [float("inf"), 2]}, "with inf"),
        ({"user_ids": [2**63, 2]}, "with 9223372036854775808"),
        ({"user_ids": [1, 1]}, "must be different ids"),
        ({"user_ids": [True, 1]}, "must be different ids"),
        ({"user_ids": [1], "item_ids": ["a", "b"]}, r"lie in 0\.\.0"),
        ({"x" * 9999: 3}, "must be a list"),
    ],
)
def test_ids_that_were_not_saved_like_this(tmp_path, ids, message):
    make_interactions().save(tmp_path)
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    with pytest.raises(ValueError, match=message) as raised:
        Interactions.load(tmp_path)
    assert len(str(raised.value)) < 600


def test_a_saved_folder_that_is_damaged(tmp_path):
    make_interactions().save(tmp_path)
    assert Interactions.load(tmp_path).timestamps.tolist() == [5, 6, 1]
    for name in ("interactions.npz", "ids.json"):
        path = tmp_path / name
        whole = path.read_bytes()
        for content in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
            path.write_bytes(content)
            with pytest.raises(ValueError, match=f"file='.*{name}'"):
                Interactions.load(tmp_path)
        path.unlink()
        with pytest.raises(FileNotFoundError):
            Interactions.load(tmp_path)
        path.write_bytes(whole)
