import numpy as np
import pytest

from keras_bft.data import corrupt_labels

RNG = np.random.default_rng(0)
SIZES = RNG.integers(3, 30, 200)
IDS = [RNG.integers(0, 50, size) for size in SIZES]
MASKS = [np.arange(size) >= size // 2 for size in SIZES]
NUM_ANSWERS = sum(mask.sum() for mask in MASKS)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 1.0])
def test_a_share_of_the_answers_changes_and_no_prompt(rate):
    noisy = corrupt_labels(IDS, MASKS, rate, 50, seed=3)
    before, after = np.concatenate(IDS), np.concatenate(noisy.token_ids)
    changed, answers = np.concatenate(noisy.corrupted), np.concatenate(MASKS)
    np.testing.assert_array_equal(before != after, changed)
    assert changed.sum() == round(rate * NUM_ANSWERS)
    assert not changed[~answers].any()
    assert [len(row) for row in noisy.token_ids] == SIZES.tolist()
    assert noisy.token_ids[0].dtype == "int32"
    assert 0 <= after.min() and after.max() < 50


def test_smaller_rates_corrupt_a_part_of_the_same():
    few = corrupt_labels(IDS, MASKS, 0.1, 50, seed=3)
    many = corrupt_labels(IDS, MASKS, 0.3, 50, seed=3)
    other = corrupt_labels(IDS, MASKS, 0.3, 50, seed=4)
    places = np.concatenate(few.corrupted)
    assert np.concatenate(many.corrupted)[places].all()
    np.testing.assert_array_equal(
        np.concatenate(few.token_ids)[places],
        np.concatenate(many.token_ids)[places],
    )
    assert (
        np.concatenate(other.corrupted) != np.concatenate(many.corrupted)
    ).any()


def test_new_ids_are_uniform_over_the_others():
    ids = [np.full(30000, 7)]
    noisy = corrupt_labels(ids, [np.ones(30000, bool)], 1.0, 11)
    counts = np.bincount(noisy.token_ids[0], minlength=11)
    assert counts[7] == 0
    # 3000 each, with a standard deviation of 52.
    assert (np.abs(np.delete(counts, 7) - 3000) < 220).all()


def test_excluded_ids_stay_and_are_not_put_in():
    noisy = corrupt_labels(IDS, MASKS, 1.0, 50, exclude_ids=[2, 5])
    before, after = np.concatenate(IDS), np.concatenate(noisy.token_ids)
    kept = np.isin(before, [2, 5])
    np.testing.assert_array_equal(after[kept], before[kept])
    assert not np.isin(after[np.concatenate(noisy.corrupted)], [2, 5]).any()


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="rate=1.5"):
        corrupt_labels(IDS, MASKS, 1.5, 50)
    with pytest.raises(ValueError, match="vocabulary_size=40 and id"):
        corrupt_labels(IDS, MASKS, 1.0, 40)
    with pytest.raises(ValueError, match="vocabulary_size=2"):
        corrupt_labels(IDS, MASKS, 1.0, 2, exclude_ids=[1])
    with pytest.raises(ValueError, match="200 examples and 1 entries"):
        corrupt_labels(IDS, MASKS[:1], 1.0, 50)
    with pytest.raises(ValueError, match=r"answer_mask\[0\] of shape \(2,\)"):
        corrupt_labels([[1, 2, 3]], [[True, False]], 1.0, 50)
