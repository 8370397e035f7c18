import numpy as np
import pytest

from keras_bft.data import leave_one_out
from keras_bft.data import synthetic_interactions


@pytest.fixture(scope="module")
def synthetic():
    return synthetic_interactions()


def test_equal_arguments_give_equal_data():
    first = synthetic_interactions(num_users=50, seed=4)
    second = synthetic_interactions(num_users=50, seed=4)
    other = synthetic_interactions(num_users=50, seed=5)
    for name in ("user_codes", "item_codes", "timestamps", "item_ids"):
        np.testing.assert_array_equal(
            getattr(first.interactions, name),
            getattr(second.interactions, name),
        )
    np.testing.assert_array_equal(first.reliability, second.reliability)
    assert (
        first.interactions.item_codes.tolist()
        != other.interactions.item_codes.tolist()
    )


def test_sizes(synthetic):
    interactions = synthetic.interactions
    lengths = np.array([len(s) for s in interactions.sequences()])
    assert interactions.num_users == 2500
    assert 700 < interactions.num_items <= 800
    assert lengths.min() == 5
    # Geometric with mean 15: the standard error of the mean is about 0.2.
    assert abs(lengths.mean() - 15) < 0.8
    first_user = interactions.timestamps[: lengths[0]]
    assert first_user.tolist() == list(range(lengths[0]))


def test_share_of_random_clicks(synthetic):
    assert set(synthetic.reliability.tolist()) == {0.0, 1.0}
    assert synthetic.reliability.shape == (
        synthetic.interactions.num_interactions,
    )
    assert abs(synthetic.reliability.mean() - 0.75) < 0.02
    reliable = synthetic_interactions(num_users=50, unreliable_share=0)
    assert reliable.reliability.min() == 1


def test_reliability_is_tied_to_the_item(synthetic):
    counts = synthetic.interactions.item_counts()
    share = synthetic.item_reliability()
    item = 17
    rows = synthetic.interactions.item_codes == item
    genuine = int(synthetic.reliability[rows].sum())
    assert share[item] == genuine / int(rows.sum())
    assert share[0] == 0 and share.shape == counts.shape
    # About a tenth of the items are mostly random clicks, rare and common.
    often = np.flatnonzero(counts >= 20)
    misleading = often[share[often] < 0.5]
    assert 0.05 < len(misleading) / len(often) < 0.25
    half = np.median(counts[often])
    assert np.any(counts[misleading] < half)
    assert np.any(counts[misleading] > half)
    # Were it not for the item, shares of 20 clicks would spread by 0.1.
    assert np.std(share[often]) > 0.15


def test_items_are_popular_by_zipf(synthetic):
    counts = np.sort(synthetic.interactions.item_counts()[1:])[::-1]
    tenth = len(counts) // 10
    assert counts[:tenth].sum() > 0.5 * counts.sum()
    assert np.median(counts) < 0.02 * counts[0]
    flat = synthetic_interactions(zipf_exponent=0, unreliable_share=0)
    flat_counts = np.sort(flat.interactions.item_counts()[1:])[::-1]
    assert flat_counts[:tenth].sum() < 0.4 * flat_counts.sum()


def test_sequences_can_be_learned_where_clicks_are_genuine(synthetic):
    """Counts of pairs predict what follows a genuine click, popularity not."""
    interactions = synthetic.interactions
    sequences = interactions.sequences()
    split = leave_one_out(sequences)
    size = interactions.num_items + 1
    pairs = np.zeros((size, size))
    for sequence in split.train:
        np.add.at(pairs, (sequence[:-1], sequence[1:]), 1)
    popularity = split.train_item_counts(interactions.num_items)
    popularity = popularity / popularity.sum()

    last_rows = np.cumsum([len(s) for s in sequences]) - 1
    genuine = synthetic.reliability[last_rows] == 1
    before = synthetic.reliability[last_rows - 1] == 1
    last_items = np.array([history[-1] for history in split.test_histories])

    def hit_rate(scores, users):
        targets = split.test_targets[users]
        scores = scores[users]
        own = np.take_along_axis(scores, targets[:, None], axis=1)
        return np.mean(np.sum(scores > own, axis=1) < 10)

    by_pairs = pairs[last_items] + popularity
    by_popularity = np.tile(popularity, (len(last_items), 1))
    after_genuine = hit_rate(by_pairs, genuine & before)
    assert after_genuine > 0.5
    assert after_genuine > 2 * hit_rate(by_popularity, genuine & before)
    assert after_genuine > 2 * hit_rate(by_pairs, genuine & ~before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_users": 0}, "`num_users` must be >= 1"),
        ({"mean_length": 4}, "`mean_length` must be >= 5"),
        ({"zipf_exponent": -1}, "`zipf_exponent` must be >= 0"),
        ({"unreliable_share": 1}, r"`unreliable_share` must be in \[0, 1\)"),
        ({"num_clusters": 9, "num_items": 8}, "from 1 to num_items=8"),
        ({"num_clusters": 0}, "from 1 to num_items=800"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthetic_interactions(**arguments)


def test_smallest_size():
    synthetic = synthetic_interactions(
        num_users=1, num_items=1, num_clusters=1, mean_length=5
    )
    assert synthetic.interactions.sequences()[0].tolist() == [1] * 5
