from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import Interactions


def from_pairs(pairs, timestamps=None, item_ids=None):
    users, items = np.array(pairs).T
    return Interactions.from_rows(
        user_codes=users,
        item_codes=items,
        timestamps=None if timestamps is None else np.array(timestamps),
        user_ids=np.arange(100, 100 + users.max() + 1),
        item_ids=np.arange(10, 10 * (items.max() + 1), 10)
        if item_ids is None
        else item_ids,
    )


def test_items_are_coded_by_count_then_first_appearance():
    # Items 10, 20, 30, 40 with counts 1, 2, 3, 2; 40 is met before 20.
    interactions = from_pairs(
        [(0, 4), (0, 3), (0, 2), (1, 3), (1, 1), (1, 4), (2, 2), (2, 3)]
    )
    assert interactions.item_ids.tolist() == [30, 40, 20, 10]
    assert interactions.item_codes.tolist() == [2, 1, 3, 1, 4, 2, 3, 1]
    assert interactions.item_counts().tolist() == [0, 3, 2, 2, 1]


def test_rows_sort_by_time_and_ties_keep_their_order():
    interactions = from_pairs(
        [(1, 1), (0, 3), (1, 2), (0, 1), (1, 4), (0, 4)],
        timestamps=[5, 7, 5, 7, 2, 7],
    )
    ids = [interactions.decode(codes) for codes in interactions.sequences()]
    assert [history.tolist() for history in ids] == [[30, 10, 40], [40, 10, 20]]
    assert interactions.timestamps.tolist() == [7, 7, 7, 2, 5, 5]
    times = interactions.sequence_timestamps()
    assert [t.tolist() for t in times] == [[7, 7, 7], [2, 5, 5]]
    assert from_pairs([(0, 1)]).sequence_timestamps() is None


def test_sequences_cover_users_without_rows():
    interactions = from_pairs([(0, 1), (2, 2), (2, 1), (4, 1)])
    sequences = interactions.sequences()
    assert [s.tolist() for s in sequences] == [[1], [], [2, 1], [], [1]]
    assert {s.dtype for s in sequences} == {np.dtype("int32")}
    assert interactions.num_empty_users == 2


def brute_force_core(pairs, k):
    while True:
        users = [u for u, _ in pairs]
        items = [i for _, i in pairs]
        kept = [
            (u, i) for u, i in pairs if users.count(u) >= k <= items.count(i)
        ]
        if kept == pairs:
            return pairs
        pairs = kept


@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_core_equals_brute_force(k):
    rng = np.random.default_rng(k)
    pairs = [
        (int(u), int(i))
        for u, i in zip(
            np.sort(rng.integers(0, 12, 60)),
            rng.geometric(0.2, 60),
            strict=True,
        )
    ]
    interactions = from_pairs(pairs, timestamps=range(60))
    core = interactions.k_core(k)
    rows = zip(
        core.user_ids[core.user_codes] - 100,
        core.decode(core.item_codes) // 10,
        strict=True,
    )
    expected = brute_force_core(pairs, k)
    assert list(rows) == expected
    assert core.num_empty_users == 0
    assert np.all(np.diff(core.item_counts()[1:]) <= 0)
    assert len(expected) < 60 or k == 1


def test_k_core_that_takes_more_than_one_pass():
    # Without item 3, user 1 is short; without user 1, so is item 2.
    pairs = [(0, 1), (0, 4), (1, 2), (1, 3), (2, 1), (2, 4), (2, 2)]
    core = from_pairs(pairs).k_core(2)
    assert core.user_ids.tolist() == [100, 102]
    assert core.item_ids.tolist() == [10, 40]


def test_k_core_of_nothing_raises():
    interactions = from_pairs([(0, 1), (1, 2)])
    with pytest.raises(ValueError, match="2 interactions each.*k=2"):
        interactions.k_core(2)
    with pytest.raises(ValueError, match="`k` must be at least 1"):
        interactions.k_core(0)


def test_duplicates_are_counted_by_time():
    pairs = [(0, 1), (0, 1), (0, 1), (1, 1), (0, 2), (0, 1)]
    assert from_pairs(pairs, [3, 3, 4, 3, 3, 3]).num_duplicates == 2
    assert from_pairs(pairs).num_duplicates == 0


def test_encode_and_decode_are_inverse():
    names = np.array(["tea", "milk", "salt"], dtype=object)
    interactions = from_pairs([(0, 3), (0, 2), (1, 3), (1, 1)], item_ids=names)
    encoded = interactions.encode([["salt", "tea"], [], ["milk"]])
    assert [codes.tolist() for codes in encoded] == [[1, 3], [], [2]]
    assert {codes.dtype for codes in encoded} == {np.dtype("int32")}
    assert interactions.decode(encoded[0]).tolist() == ["salt", "tea"]
    assert interactions.decode([[1], [2]]).tolist() == [["salt"], ["milk"]]
    assert interactions.decode([]).shape == (0,)


def test_encode_takes_arrays_and_iterators():
    interactions = from_pairs([(0, 3), (0, 2), (1, 3)])
    encoded = interactions.encode(iter([np.array([30, 20]), iter([20])]))
    assert [codes.tolist() for codes in encoded] == [[1, 2], [2]]


def test_encode_names_unknown_ids():
    interactions = from_pairs([(0, 3), (0, 2), (1, 3)])
    with pytest.raises(ValueError, match=r"2 item ids.*\[99, 'tea'\]"):
        interactions.encode([[30, 99], ["tea", 20, 99]])


@pytest.mark.parametrize("histories", [["tea", "milk"], [30, 20], "tea"])
def test_encode_wants_a_history_for_each_user(histories):
    interactions = from_pairs([(0, 3), (0, 2), (1, 3)])
    with pytest.raises(ValueError, match="a history of item ids for each user"):
        interactions.encode(histories)


def test_histories_of_users():
    names = np.array(["ann", "bob", "cid"], dtype=object)
    interactions = Interactions(
        np.array([0, 0, 2]), np.array([2, 1, 2]), None, names, np.array([5, 6])
    )
    histories = interactions.histories(["cid", "ann", "bob"])
    assert [codes.tolist() for codes in histories] == [[2], [2, 1], []]
    assert {codes.dtype for codes in histories} == {np.dtype("int32")}
    assert interactions.histories([]) == []
    with pytest.raises(ValueError, match=r"1 user ids are unknown.*\['dan'\]"):
        interactions.histories(["ann", "dan"])
    with pytest.raises(ValueError, match="a list of ids.*user_ids='ann'"):
        interactions.histories("ann")


@pytest.mark.parametrize("codes", [[0], [3], [-1], [1.5]])
def test_decode_refuses_what_is_no_code(codes):
    interactions = from_pairs([(0, 3), (0, 2), (1, 3)])
    with pytest.raises(ValueError, match="`codes` must"):
        interactions.decode(codes)


@pytest.mark.parametrize(
    "item_ids",
    [
        np.array([7, -3, 2**62]),
        np.array(["tea", "ü", ""], dtype=object),
        np.array([1, "1", 1.5], dtype=object),
    ],
)
@pytest.mark.parametrize("timestamps", [None, [4, 1, 1], [4.5, 1.0, 1.0]])
def test_save_and_load(tmp_path: Path, item_ids, timestamps):
    saved = from_pairs([(0, 1), (2, 2), (2, 3)], timestamps, item_ids)
    saved.save(tmp_path / "new" / "folder")
    loaded = Interactions.load(tmp_path / "new" / "folder")
    for name in ("user_codes", "item_codes", "user_ids", "item_ids"):
        np.testing.assert_array_equal(
            getattr(loaded, name), getattr(saved, name)
        )
        assert getattr(loaded, name).dtype == getattr(saved, name).dtype
    assert list(map(type, loaded.item_ids)) == list(map(type, saved.item_ids))
    if timestamps is None:
        assert loaded.timestamps is None
    else:
        np.testing.assert_array_equal(loaded.timestamps, saved.timestamps)
        assert loaded.timestamps.dtype == saved.timestamps.dtype


def test_save_refuses_ids_that_json_would_change(tmp_path: Path):
    ids = np.empty(2, dtype=object)
    ids[:] = [("a", 1), ("b", 2)]
    interactions = from_pairs([(0, 1), (0, 2)], item_ids=ids)
    with pytest.raises(TypeError, match=r"`item_ids` holds \('a', 1\)"):
        interactions.save(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_load_needs_both_files(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Interactions.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_codes": np.array([1, 0, 1])}, "`user_codes` must be sorted"),
        ({"user_codes": np.array([0, 1, 2])}, "`user_codes` must lie in 0..1"),
        ({"item_codes": np.array([0, 1, 1])}, "`item_codes` must lie in 1..2"),
        ({"item_codes": np.array([1, 2])}, "`item_codes` must be integers"),
        ({"timestamps": np.array([1, 2])}, "`timestamps` must have one time"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    arrays = {
        "user_codes": np.array([0, 0, 1]),
        "item_codes": np.array([1, 2, 1]),
        "timestamps": None,
        "user_ids": np.array([5, 6]),
        "item_ids": np.array([7, 8]),
    }
    assert repr(Interactions(**arrays)) == (
        "Interactions(num_users=2, num_items=2, num_interactions=3)"
    )
    with pytest.raises(ValueError, match=message):
        Interactions(**(arrays | change))
