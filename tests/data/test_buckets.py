import itertools

import numpy as np
import pytest

from keras_bft.data.buckets import choose_bucket_lengths


def positions(bucket_lengths, lengths, batch_size):
    """Positions of all batches of an epoch, by counting batch by batch."""
    total = 0
    shorter = 0
    for length in bucket_lengths:
        rows = np.count_nonzero((lengths > shorter) & (lengths <= length))
        total += length * batch_size * -(-rows // batch_size)
        shorter = length
    return total


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.integers(2, 11), size=rng.integers(1, 60))
    batch_size = int(rng.integers(1, 9))
    sizes = np.unique(lengths).tolist()
    best = min(
        positions([*shorter, sizes[-1]], lengths, batch_size)
        for count in range(4)
        for shorter in itertools.combinations(sizes[:-1], count)
    )
    chosen = choose_bucket_lengths(lengths, batch_size)
    assert chosen == sorted(set(chosen)) and len(chosen) <= 4
    assert chosen[-1] == sizes[-1]
    assert positions(chosen, lengths, batch_size) == best


def test_few_rows_share_one_bucket():
    assert choose_bucket_lengths(np.array([1, 5, 9]), batch_size=256) == [9]
