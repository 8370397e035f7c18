import numpy as np
import pytest

from keras_bft.data import MaskedItemDataset

MASK = 100
SEQUENCES = [list(range(1 + i, 9 + i + i % 3)) for i in range(40)] + [[1]]


def masked(sequences=SEQUENCES, **options):
    defaults = {"mask_id": MASK, "batch_size": 8, "max_length": 8}
    return MaskedItemDataset(sequences, **{**defaults, **options})


def batches(dataset):
    return [dataset[index] for index in range(len(dataset))]


def test_inputs_and_targets_together_are_the_newest_items():
    dataset = masked(shuffle=False)
    rows = [
        row
        for inputs, targets in batches(dataset)
        for row in np.where(inputs == MASK, targets, inputs)
        if row.any()
    ]
    assert sorted(row[row > 0].tolist() for row in rows) == sorted(
        sequence[-8:] for sequence in SEQUENCES if len(sequence) > 1
    )
    assert dataset.num_without_target == 1


def test_targets_are_the_masked_items_and_each_row_has_one():
    for inputs, targets in batches(masked()):
        np.testing.assert_array_equal(inputs == MASK, targets > 0)
        real = inputs.any(axis=1)
        assert np.all((targets > 0).any(axis=1) == real)


def test_a_row_of_which_chance_masks_nothing_has_its_last_masked():
    for inputs, _ in batches(masked(mask_rate=1e-9, last_rate=0.0)):
        for row in inputs[inputs.any(axis=1)]:
            places = np.flatnonzero(row == MASK)
            assert places.tolist() == [np.count_nonzero(row) - 1]


def test_the_rates_are_those_asked_for():
    sequences = [np.arange(1, 21)] * 400
    options = {"max_length": 20, "batch_size": 400}
    (inputs, _), *_ = batches(
        masked(sequences, mask_rate=0.3, last_rate=0.25, **options)
    )
    is_mask = inputs == MASK
    only_last = is_mask[:, -1] & (is_mask.sum(axis=1) == 1)
    assert abs(only_last.mean() - 0.25) < 0.07
    assert abs(is_mask[~only_last].mean() - 0.3) < 0.02


def test_masks_change_by_epoch_and_seed_alone():
    def read(dataset):
        return np.stack([np.stack(batch) for batch in batches(dataset)])

    dataset = masked(bucket_lengths=[8], shuffle=False)
    first = read(dataset)
    np.testing.assert_array_equal(read(dataset), first)
    np.testing.assert_array_equal(dataset[-1], first[-1])
    dataset.epoch = 1
    assert np.any(read(dataset) != first)
    dataset.epoch = 0
    np.testing.assert_array_equal(dataset[0], first[0])
    other = masked(bucket_lengths=[8], shuffle=False, seed=1)
    assert np.any(read(other) != first)


@pytest.mark.parametrize(
    "options, received",
    [
        ({"mask_rate": 0.0}, "mask_rate=0.0"),
        ({"mask_rate": 1}, "mask_rate=1"),
        ({"last_rate": -0.1}, "last_rate=-0.1"),
        ({"mask_id": 10}, "mask_id=10"),
    ],
)
def test_arguments_outside_their_domain_raise(options, received):
    with pytest.raises(ValueError, match=f"Received: {received}"):
        masked(**options)
