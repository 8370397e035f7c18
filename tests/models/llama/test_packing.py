import numpy as np
import pytest

from keras_bft.models.llama.packing import pack_examples


def unpack(rows):
    """Returns ids, targets and weights of the segments, sorted."""
    found = []
    for row in range(len(rows["token_ids"])):
        segments = rows["segment_ids"][row]
        for segment in range(1, segments.max() + 1):
            at = segments == segment
            places = np.flatnonzero(at)
            assert np.array_equal(np.diff(places), np.ones(len(places) - 1))
            assert rows["positions"][row][at].tolist() == [*range(at.sum())]
            found.append(
                tuple(
                    tuple(rows[key][row][at].tolist())
                    for key in ("token_ids", "targets", "sample_weight")
                )
            )
    return sorted(found)


def test_values_written_out_by_hand():
    rows = pack_examples(
        [[5, 6], np.array([1, 2, 3, 4]), [7, 8, 9], [4]],
        [[1, 1], [0, 0, 1, 2], [1, 0, 0.5], [1]],
        sequence_length=5,
        pad_id=99,
    )
    expected = {
        "token_ids": [[1, 2, 3, 4, 4], [7, 8, 9, 5, 6]],
        "segment_ids": [[1, 1, 1, 1, 2], [1, 1, 1, 2, 2]],
        "positions": [[0, 1, 2, 3, 0], [0, 1, 2, 0, 1]],
        "padding_mask": [[True] * 5, [True] * 5],
        "targets": [[2, 3, 4, 99, 99], [8, 9, 99, 6, 99]],
        "sample_weight": [[0, 1, 2, 0, 0], [0, 0.5, 0, 1, 0]],
    }
    assert list(rows) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(rows[key], value)
    kinds = {key: rows[key].dtype.name for key in rows}
    assert kinds["sample_weight"] == "float32"
    assert kinds["padding_mask"] == "bool"
    assert {kinds[k] for k in list(kinds)[:3]} == {"int32"}


def test_padding():
    rows = pack_examples([[5, 6, 7]], None, 5, pad_id=9)
    assert rows["token_ids"].tolist() == [[5, 6, 7, 9, 9]]
    assert rows["targets"].tolist() == [[6, 7, 9, 9, 9]]
    assert rows["segment_ids"].tolist() == [[1, 1, 1, 0, 0]]
    assert rows["positions"].tolist() == [[0, 1, 2, 0, 0]]
    assert rows["padding_mask"].tolist() == [[True] * 3 + [False] * 2]
    assert rows["sample_weight"].tolist() == [[1, 1, 0, 0, 0]]


def test_every_example_stands_whole_in_one_row():
    generator = np.random.default_rng(0)
    length = 32
    examples, weights, expected = [], [], []
    for size in generator.integers(1, length + 1, 300):
        ids = generator.integers(1, 1000, size)
        weight = generator.integers(0, 2, size).astype("float32")
        examples.append(ids)
        weights.append(weight)
        expected.append(
            (
                tuple(ids.tolist()),
                (*ids[1:].tolist(), 0),
                (*weight[1:].tolist(), 0.0),
            )
        )
    rows = pack_examples(examples, weights, length, pad_id=0)
    assert unpack(rows) == sorted(expected)
    total = sum(map(len, examples))
    assert rows["padding_mask"].sum() == total
    assert total / rows["padding_mask"].size > 0.95
    again = pack_examples(examples, weights, length, pad_id=0)
    for key in rows:
        np.testing.assert_array_equal(rows[key], again[key])


@pytest.mark.parametrize("size", [*range(1, 14), 100])
def test_split_loses_no_target(size):
    ids = np.arange(1, size + 1)
    weights = np.arange(size) / 4
    rows = pack_examples([ids], [weights], 4, pad_id=0, split=True)
    pairs = [
        (token, target, weight)
        for tokens, targets, row in unpack(rows)
        for token, target, weight in zip(tokens, targets, row, strict=True)
        if target
    ]
    assert sorted(pairs) == [(i, i + 1, i / 4) for i in range(1, size)]
    assert rows["sample_weight"].sum() == pytest.approx(weights.sum())


def test_an_example_that_is_too_long():
    with pytest.raises(ValueError, match="unless `split=True`.*of 6 tokens"):
        pack_examples([[1], [1] * 6], None, 5, pad_id=0)
    assert len(pack_examples([[1] * 5], None, 5, 0)["token_ids"]) == 1


@pytest.mark.parametrize(
    "token_ids, sample_weights, message",
    [
        ([], None, "at least one"),
        ([[]], None, r"token_ids\[0\]"),
        ([[1], [[1]]], None, r"token_ids\[1\]"),
        ([[1.5]], None, r"token_ids\[0\]"),
        ([[True]], None, r"token_ids\[0\]"),
        ([[-1]], None, "from 0 on"),
        ([[2**31]], None, "32 bits"),
        ([[1]], [], "0 entries"),
        ([[1, 2]], [[1]], r"sample_weights\[0\]"),
        ([[1, 2]], [[1, -1]], r"sample_weights\[0\]"),
        ([[1, 2]], [[1, float("nan")]], r"sample_weights\[0\]"),
    ],
)
def test_examples_that_are_none(token_ids, sample_weights, message):
    with pytest.raises(ValueError, match=message):
        pack_examples(token_ids, sample_weights, 5, pad_id=0)


@pytest.mark.parametrize("length", [0, 1, 2.0, True, None])
def test_length_outside_its_domain(length):
    with pytest.raises(ValueError, match=f"sequence_length={length}"):
        pack_examples([[1]], None, length, pad_id=0)
