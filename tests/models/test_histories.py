import numpy as np
import pytest

from keras_bft.models._histories import bucket_length
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import check_ids
from keras_bft.models._histories import chunks_of_similar_length
from keras_bft.models._histories import padded_batch


def test_known_ids_and_padding_pass():
    check_ids("x", np.array([[0, 1], [5, 0]]), 5)
    check_ids("x", np.array([], "int64"), 5)
    check_ids("x", np.array([5], "uint8"), 5)


@pytest.mark.parametrize(
    "ids, received",
    [
        (np.array([1, 6]), "Received: 6"),
        (np.array([[1, 2], [-3, 7]]), "Received: -3"),
        (np.array([1.0, 2.0]), "Received: dtype float64"),
        (np.array([True]), "Received: dtype bool"),
    ],
)
def test_unknown_ids_raise(ids, received):
    with pytest.raises(ValueError, match=f"`x` .*{received}"):
        check_ids("x", ids, 5)


def test_histories_come_back_as_arrays():
    arrays = check_histories([[3, 1], (2,), np.array([4, 4, 5])], 5)
    assert [array.tolist() for array in arrays] == [[3, 1], [2], [4, 4, 5]]
    assert check_histories([], 5) == []


@pytest.mark.parametrize(
    "history, received",
    [
        ([], r"histories\[1\] of shape \(0,\)"),
        (3, r"histories\[1\] of shape \(\)"),
        ([[1, 2]], r"histories\[1\] of shape \(1, 2\)"),
        ([1, 6], "6"),
        ([1, -1], "-1"),
        ([1, 0, 2], r"\[1, 0, 2\]"),
        ([1.0, 2.0], "dtype float64"),
        (["a"], r"histories\[1\]=\['a'\]"),
    ],
)
def test_wrong_histories_raise_and_say_which(history, received):
    with pytest.raises(ValueError, match=f"histories.*Received: {received}"):
        check_histories([[1], history], 5)


@pytest.mark.parametrize("max_length", [1, 3, 8, 50])
def test_bucket_lengths_fit_and_are_few(max_length):
    buckets = [bucket_length(n, max_length) for n in range(1, max_length + 1)]
    assert all(bucket >= n for n, bucket in enumerate(buckets, start=1))
    assert buckets == sorted(buckets)
    assert buckets[-1] == max_length
    assert len(set(buckets)) <= 4
    # No more than twice the length, unless the smallest is that long.
    assert all(
        bucket <= max(2 * n, -(-max_length // 8))
        for n, bucket in enumerate(buckets, start=1)
    )


def test_chunks_share_a_padded_length():
    lengths = [1, 8, 2, 5, 1, 1]
    chunks = list(chunks_of_similar_length(lengths, 8, 2))
    assert [
        (users.tolist(), length, rows) for users, length, rows in chunks
    ] == [([0, 4], 1, 2), ([5], 1, 2), ([2], 2, 1), ([1, 3], 8, 2)]


def test_batches_keep_the_newest():
    batch = padded_batch([np.array([1, 2, 3]), np.array([4])], 2, 3)
    assert batch.tolist() == [[2, 3], [4, 0], [0, 0]]
