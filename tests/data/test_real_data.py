"""Checks on public files, for those who have them.

Set `KERAS_BFT_DATA` to a folder with `recsys/beauty.txt.gz` and the like.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import leave_one_out
from keras_bft.data import read_interactions

FOLDER = os.environ.get("KERAS_BFT_DATA")
pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif(not FOLDER, reason="KERAS_BFT_DATA is not set"),
]


def read(name):
    path = Path(FOLDER) / "recsys" / name
    if not path.exists():
        pytest.skip(f"no {name}")
    return read_interactions(path)


@pytest.mark.parametrize(
    ("name", "users", "items", "rows"),
    [
        ("beauty.txt.gz", 22363, 12101, 198502),
        ("sports.txt.gz", 35598, 18357, 296337),
        ("yelp.txt.gz", 30431, 20033, 316354),
        ("instruments2018.txt.gz", 24772, 9922, 206153),
        ("ml-1m.txt.gz", 6040, 3416, 999611),
        ("ml-100k.tsv.gz", 943, 1682, 100000),
    ],
)
def test_counts(name, users, items, rows):
    interactions = read(name)
    assert interactions.num_users == users
    assert interactions.num_items == items
    assert interactions.num_interactions == rows
    assert interactions.num_empty_users == 0


@pytest.mark.parametrize("name", ["beauty", "sports"])
def test_lines_and_table_give_the_same_sequences(name):
    lines = read(f"{name}.txt.gz")
    table = read(f"{name}.tsv.gz")
    np.testing.assert_array_equal(lines.user_codes, table.user_codes)
    np.testing.assert_array_equal(lines.item_codes, table.item_codes)
    np.testing.assert_array_equal(lines.user_ids, table.user_ids)
    np.testing.assert_array_equal(lines.item_ids, table.item_ids)


@pytest.mark.parametrize("name", ["beauty.txt.gz", "sports.txt.gz"])
def test_five_core_files_are_their_own_core(name):
    interactions = read(name)
    core = interactions.k_core(5)
    np.testing.assert_array_equal(core.item_codes, interactions.item_codes)


def test_repeated_test_items_of_yelp():
    split = leave_one_out(read("yelp.txt.gz").sequences())
    repeats = sum(
        target in history
        for target, history in zip(
            split.test_targets, split.test_histories, strict=True
        )
    )
    assert repeats == 2027
