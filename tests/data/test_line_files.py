import gzip
from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import read_interactions


def read(tmp_path: Path, data: bytes | str, name: str = "data.txt"):
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_interactions(path)


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


EXPECTED = {3: [9, 4, 9], 1: [4], 2: [9, 4000000000000000000]}


@pytest.mark.parametrize(
    "text",
    [
        "3 9 4 9\n1 4\n2 9 4000000000000000000\n",
        "3 9 4 9\r\n1 4\r\n2 9 4000000000000000000",
        "3 9 4 9\r1 4\r2 9 4000000000000000000\r",
        "\ufeff3 9 4 9\n1 4\n2 9 4000000000000000000\n",
        "\n3\t9  4 9 \n\n  1 4\n2 9 4000000000000000000\n\n",
    ],
    ids=["lf", "crlf", "cr", "bom", "blanks"],
)
def test_lines_of_any_system(tmp_path, text):
    interactions = read(tmp_path, text)
    assert histories(interactions) == EXPECTED
    assert interactions.timestamps is None
    assert interactions.item_ids.tolist() == [9, 4, 4000000000000000000]
    compressed = gzip.compress(text.encode())
    assert histories(read(tmp_path, compressed, "data.txt.gz")) == EXPECTED


def test_users_keep_the_order_of_the_lines(tmp_path):
    interactions = read(tmp_path, "30 1\n10 1\n20 2\n")
    assert interactions.user_ids.tolist() == [30, 10, 20]
    assert interactions.user_codes.tolist() == [0, 1, 2]


def test_user_without_items_is_kept_and_counted(tmp_path):
    interactions = read(tmp_path, "5 1 2\n6\n7 2\n")
    assert histories(interactions) == {5: [1, 2], 6: [], 7: [2]}
    assert interactions.num_empty_users == 1


def test_repeated_items_are_repeated_visits(tmp_path):
    interactions = read(tmp_path, "5 1 1 1\n")
    assert histories(interactions) == {5: [1, 1, 1]}
    assert interactions.num_duplicates == 0


def test_largest_id(tmp_path):
    largest = np.iinfo(np.int64).max
    assert histories(read(tmp_path, f"1 {largest}\n")) == {1: [largest]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n\n4 x5 6\n", r"line 3 has 'x5'.*line 3: '4 x5 6'"),
        ("1 2\n3,4\n", r"line 2 has '3,4'"),
        ("1 2.5\n", r"line 1 has '2.5'"),
        ("1 ٣\n", r"line 1 has '٣'"),
        ("1 2\n3 -4\n", r"Ids lie in 1\.\..*line 2 has -4"),
        ("1 2\n3 4 0 5\n6 7", r"Ids lie in 1\.\..*line 2 has 0"),
        ("0 2\n", r"Ids lie in 1\.\..*line 1 has 0"),
        ("1 9223372036854775808\n", r"line 1 has 9223372036854775808"),
        ("1 " + "9" * 5000, r"line 1 has 9{40}\. .*'1 9+\.\.\.'"),
        ("1 2\n7 3\n8 4\n7 5\n", r"user 7 is on lines \[2, 4\]"),
        ("1\n2\n", "no interactions: every line has a user"),
        ("", "file is empty"),
        (" \n\r\n", "file is empty"),
        ("\ufeff\n", "file is empty"),
    ],
)
def test_malformed_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, text)
    assert "Received: source=" in str(error.value)


def test_text_of_another_encoding_is_refused(tmp_path):
    with pytest.raises(ValueError, match="line 1 has"):
        read(tmp_path, "1 2\n".encode("utf-16"))


@pytest.mark.parametrize(
    "data", [b"1 2\n", gzip.compress(b"1 2\n" * 100)[:-10]]
)
def test_broken_gzip_is_refused(tmp_path, data):
    with pytest.raises(ValueError, match="not a whole gzip file"):
        read(tmp_path, data, "data.txt.gz")


@pytest.mark.parametrize("duplicates", ["drop", "raise"])
def test_duplicates_need_times(tmp_path, duplicates):
    path = tmp_path / "data.txt"
    path.write_text("1 2 2\n")
    with pytest.raises(ValueError, match="a line file has no times"):
        read_interactions(path, duplicates=duplicates)
