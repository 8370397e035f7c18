import numpy as np
import pytest

from keras_bft.data import Interactions
from keras_bft.data import leave_one_out


def as_lists(arrays):
    return [array.tolist() for array in arrays]


SEQUENCES = [
    np.array(sequence, dtype=np.int32)
    for sequence in ([4, 2, 7, 1], [3, 5], [], [6, 8, 9], [2])
]


def test_last_item_is_test_and_the_one_before_validation():
    split = leave_one_out(SEQUENCES)
    assert split.users.tolist() == [0, 3]
    assert as_lists(split.validation_histories) == [[4, 2], [6]]
    assert split.validation_targets.tolist() == [7, 8]
    assert as_lists(split.test_histories) == [[4, 2, 7], [6, 8]]
    assert split.test_targets.tolist() == [1, 9]


def test_short_users_stay_in_training_whole():
    split = leave_one_out(SEQUENCES)
    assert as_lists(split.train) == [[4, 2], [3, 5], [], [6], [2]]
    assert split.num_not_evaluated == 3


def test_training_counts_leave_out_what_is_held_out():
    split = leave_one_out(SEQUENCES)
    counts = split.train_item_counts(9)
    assert counts.tolist() == [0, 0, 2, 1, 1, 1, 1, 0, 0, 0]
    assert counts[split.test_targets].tolist() == [0, 0]
    with pytest.raises(ValueError, match="hold item 6.*num_items=5"):
        split.train_item_counts(5)


def test_no_user_to_evaluate_raises():
    with pytest.raises(ValueError, match="2 sequences, the longest of 2"):
        leave_one_out([np.array([1, 2]), np.array([3])])
    with pytest.raises(ValueError, match="0 sequences, the longest of 0"):
        leave_one_out([])


def test_interactions_are_no_sequences():
    ids = np.array([7, 8, 9])
    interactions = Interactions(
        np.zeros(3, "int64"), np.array([1, 2, 3]), None, ids[:1], ids
    )
    with pytest.raises(
        TypeError, match=r"interactions.sequences\(\).*Received"
    ):
        leave_one_out(interactions)


def test_timestamps_are_split_like_their_items():
    times = [10 * sequence for sequence in SEQUENCES]
    split = leave_one_out(SEQUENCES, times)
    for name in ("train", "validation", "test"):
        items = getattr(
            split, "train" if name == "train" else f"{name}_histories"
        )
        for sequence, stamps in zip(
            items, getattr(split, f"{name}_timestamps"), strict=True
        ):
            np.testing.assert_array_equal(stamps, 10 * sequence)
    assert leave_one_out(SEQUENCES).test_timestamps is None
    with pytest.raises(ValueError, match="1 sequences of 4 times for 5"):
        leave_one_out(SEQUENCES, times[:1])
