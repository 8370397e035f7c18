import numpy as np
import pytest

from keras_bft.data import TokenDataset

RNG = np.random.default_rng(1)
ROWS = [RNG.integers(1, 99, size) for size in RNG.integers(2, 60, 150)]
WEIGHTS = [(np.arange(len(row)) >= len(row) // 2) * 2.0 for row in ROWS]


def rows_of(dataset):
    """Ids, targets and weights of the real tokens of each row."""
    found = []
    for index in range(len(dataset)):
        inputs, targets, weights = dataset[index]
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        assert ids.shape == mask.shape == targets.shape == weights.shape
        assert ids.size <= dataset.tokens_per_batch
        assert not weights[~mask].any() and (ids[~mask] == 3).all()
        for row in range(len(ids)):
            size = mask[row].sum()
            assert mask[row, :size].all()
            if size:
                found.append(
                    tuple(
                        tuple(x[row, :size].tolist())
                        for x in (ids, targets, weights)
                    )
                )
    return found


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_once_within_the_budget(shuffle):
    dataset = TokenDataset(
        ROWS, WEIGHTS, tokens_per_batch=300, shuffle=shuffle, pad_id=3
    )
    expected = sorted(
        (tuple(r[:-1].tolist()), tuple(r[1:].tolist()), tuple(w[1:].tolist()))
        for r, w in zip(ROWS, WEIGHTS, strict=True)
    )
    assert sorted(rows_of(dataset)) == expected
    counts = [dataset.num_tokens(i) for i in range(len(dataset))]
    assert sum(counts) == sum(len(row) - 1 for row in ROWS)
    assert counts[1] == dataset[1][0]["padding_mask"].sum()
    assert dataset.num_target_tokens == sum((w[1:] > 0).sum() for w in WEIGHTS)
    shapes = {dataset[i][1].shape for i in range(len(dataset))}
    assert 1 < len(shapes) <= 4
    # Buckets spare more than half of what padding to the longest would take.
    padded = sum(np.prod(dataset[i][1].shape) for i in range(len(dataset)))
    assert padded < 1.35 * sum(len(row) - 1 for row in ROWS)


def test_epochs_differ_and_can_be_read_again():
    dataset = TokenDataset(ROWS, tokens_per_batch=200, seed=5, pad_id=3)
    first = rows_of(dataset)
    dataset.on_epoch_end()
    second = rows_of(dataset)
    assert first != second and sorted(first) == sorted(second)
    dataset.epoch = 0
    assert rows_of(dataset) == first
    assert rows_of(TokenDataset(ROWS, None, 200, seed=6, pad_id=3)) != first


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="tokens_per_batch=20 and a row"):
        TokenDataset(ROWS, tokens_per_batch=20)
    with pytest.raises(ValueError, match=r"token_ids\[1\]"):
        TokenDataset([[1, 2], [3]])
    with pytest.raises(ValueError, match="must have rows"):
        TokenDataset([])
    with pytest.raises(ValueError, match=r"sample_weights\[0\].*for 3 tokens"):
        TokenDataset([[1, 2, 3]], [[1.0, 1.0]])
    with pytest.raises(ValueError, match=r"sample_weights\[0\]"):
        TokenDataset([[1, 2]], [[1.0, float("nan")]])
    with pytest.raises(ValueError, match="1 rows and 2 entries"):
        TokenDataset([[1, 2]], [[1.0, 1.0]] * 2)
    with pytest.raises(ValueError, match="tokens_per_batch=0"):
        TokenDataset(ROWS, tokens_per_batch=0)
