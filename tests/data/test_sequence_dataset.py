import itertools
import pickle

import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset


def make_sequences(count=90, seed=3):
    """Sequences of 2 to 30 items in which no two items are the same."""
    lengths = 1 + np.random.default_rng(seed).geometric(0.15, count)
    lengths = np.minimum(lengths, 30)
    items = np.arange(1, lengths.sum() + 1)
    return np.split(items, np.cumsum(lengths)[:-1])


def batches(dataset):
    return [dataset[i] for i in range(len(dataset))]


def rows(dataset):
    """Pairs of inputs and targets without padding, padding rows left out."""
    result = []
    for inputs, targets in batches(dataset):
        for row, target in zip(inputs, targets, strict=True):
            length = np.count_nonzero(row)
            assert not row[length:].any() and not target[length:].any()
            if length:
                result.append((row[:length].tolist(), target[:length].tolist()))
    return result


def assert_same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sequence_once_with_its_newest_items(shuffle):
    sequences = make_sequences()
    dataset = SequenceDataset(
        sequences, max_length=8, batch_size=16, shuffle=shuffle
    )
    expected = [(s[:-1][-8:].tolist(), s[1:][-8:].tolist()) for s in sequences]
    assert any(len(s) > 9 for s in sequences)
    for epoch in range(2):
        dataset.epoch = epoch
        assert sorted(rows(dataset)) == sorted(expected)


def test_batches_have_few_shapes_and_fit_their_rows():
    dataset = SequenceDataset(make_sequences(), batch_size=16)
    assert 1 < len(dataset.bucket_lengths) <= 4
    shapes = set()
    for inputs, targets in batches(dataset):
        assert inputs.shape == targets.shape
        assert inputs.dtype == targets.dtype == np.int32
        shapes.add(inputs.shape)
        lengths = np.count_nonzero(inputs, axis=1)
        length = inputs.shape[1]
        bucket = dataset.bucket_lengths.index(length)
        shorter = dataset.bucket_lengths[bucket - 1] if bucket else 0
        real = lengths[lengths > 0]
        assert np.all((real > shorter) & (real <= length))
    assert shapes == {(16, length) for length in dataset.bucket_lengths}


def test_given_bucket_lengths():
    dataset = SequenceDataset(
        [[1, 2], [1, 2, 3], [1] * 5, [1] * 20],
        max_length=10,
        batch_size=2,
        bucket_lengths=[2, 6, 10],
        shuffle=False,
    )
    widths = [inputs.shape[1] for inputs, _ in batches(dataset)]
    assert widths == [2, 6, 10]


@pytest.mark.parametrize(
    "bucket_lengths",
    [[], [5], [4, 4, 10], [6, 3, 10], [0, 10], [10, 20], "few"],
)
def test_bucket_lengths_are_checked(bucket_lengths):
    with pytest.raises(ValueError, match="`bucket_lengths` must be"):
        SequenceDataset(
            [[1, 2, 3]], max_length=10, bucket_lengths=bucket_lengths
        )


def test_sequences_without_target_are_counted():
    dataset = SequenceDataset([[1, 2], [3], [], [4, 5, 6]], batch_size=4)
    assert dataset.num_without_target == 2
    assert dataset.num_sequences == 2
    assert len(rows(dataset)) == 2


@pytest.mark.parametrize(
    ("sequences", "longest"), [([], 0), ([[1]], 1), ([[], [4]], 1)]
)
def test_no_target_at_all_raises(sequences, longest):
    with pytest.raises(ValueError, match=f"the longest of {longest} items"):
        SequenceDataset(sequences)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 0}, "`max_length` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"sequences": [[1, 0]]}, "must lie in 1"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        SequenceDataset(**({"sequences": [[1, 2]]} | arguments))


def test_epoch_must_not_be_negative():
    dataset = SequenceDataset([[1, 2]])
    with pytest.raises(ValueError, match="`epoch` must be.*epoch=-1"):
        dataset.epoch = -1


def test_batches_depend_on_seed_epoch_and_index_alone():
    sequences = make_sequences()
    dataset = SequenceDataset(sequences, batch_size=16, seed=5)
    by_epoch = []
    for _ in range(3):
        by_epoch.append(batches(dataset))
        dataset.on_epoch_end()
    assert dataset.epoch == 3

    again = SequenceDataset(sequences, batch_size=16, seed=5)
    for epoch in (2, 0, 1):
        again.epoch = epoch
        backwards = [again[i] for i in reversed(range(len(again)))]
        assert_same(backwards[::-1], by_epoch[epoch])
    assert_same(batches(pickle.loads(pickle.dumps(again))), by_epoch[1])

    other = SequenceDataset(sequences, batch_size=16, seed=6)
    for first, second in itertools.combinations([*by_epoch, batches(other)], 2):
        assert rows_of(first) != rows_of(second)


def rows_of(some_batches):
    return [inputs.tolist() for inputs, _ in some_batches]


def test_shuffling_changes_who_shares_a_batch():
    dataset = SequenceDataset(make_sequences(), batch_size=16)
    first = {frozenset(inputs[:, 0].tolist()) for inputs, _ in batches(dataset)}
    dataset.on_epoch_end()
    second = {
        frozenset(inputs[:, 0].tolist()) for inputs, _ in batches(dataset)
    }
    assert first != second


def test_without_shuffling_rows_keep_their_order():
    sequences = make_sequences()
    dataset = SequenceDataset(
        sequences, batch_size=16, bucket_lengths=[50], shuffle=False
    )
    before = rows(dataset)
    assert before == [(s[:-1].tolist(), s[1:].tolist()) for s in sequences]
    dataset.on_epoch_end()
    assert rows(dataset) == before


def test_index_out_of_range():
    dataset = SequenceDataset(make_sequences(), batch_size=16)
    assert_same([dataset[-1]], [dataset[len(dataset) - 1]])
    with pytest.raises(IndexError):
        dataset[len(dataset)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_first_two_batches_differ_in_length(shuffle):
    # Keras on TensorFlow learns from these two which axes vary.
    dataset = SequenceDataset(make_sequences(), batch_size=16, shuffle=shuffle)
    for _ in range(20):
        assert dataset[0][0].shape != dataset[1][0].shape
        dataset.on_epoch_end()


class RecordingModel(keras.Model):
    """Counts how often each item has been an input, in a weight."""

    def __init__(self, num_items):
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones")
        self.seen = self.add_weight(
            shape=(num_items + 1,), initializer="zeros", trainable=False
        )
        self.last = self.add_weight(
            shape=(), initializer="zeros", trainable=False
        )

    def call(self, inputs):
        one_hot = keras.ops.one_hot(inputs, self.seen.shape[0])
        self.seen.assign_add(keras.ops.sum(one_hot, axis=(0, 1)))
        self.last.assign(keras.ops.cast(inputs[0, 0], "float32"))
        return self.scale * keras.ops.cast(inputs, "float32")


class FirstItems(keras.callbacks.Callback):
    """Records the first item of every batch that was trained on."""

    def __init__(self):
        super().__init__()
        self.items = []

    def on_train_batch_end(self, batch, logs=None):
        self.items.append(int(self.model.last.numpy()))


def fit(dataset, num_items, **arguments):
    model = RecordingModel(num_items)
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    record = FirstItems()
    model.fit(
        dataset, shuffle=False, verbose=0, callbacks=[record], **arguments
    )
    return model, record.items


def test_fit_sees_every_item_once_an_epoch():
    sequences = make_sequences(60)
    dataset = SequenceDataset(sequences, batch_size=16)
    num_items = int(sequences[-1][-1])
    model, first_items = fit(dataset, num_items, epochs=2)
    expected = np.zeros(num_items + 1)
    for sequence in sequences:
        expected[sequence[:-1]] += 2
    seen = keras.ops.convert_to_numpy(model.seen)
    np.testing.assert_array_equal(seen[1:], expected[1:])
    assert len(first_items) == 2 * len(dataset)


def test_resumed_training_sees_the_same_batches():
    sequences = make_sequences(60)
    num_items = int(sequences[-1][-1])

    dataset = SequenceDataset(sequences, batch_size=16, seed=1)
    _, whole = fit(dataset, num_items, epochs=3)
    resumed = SequenceDataset(sequences, batch_size=16, seed=1)
    _, start = fit(resumed, num_items, epochs=2)
    resumed.epoch = 2
    _, end = fit(resumed, num_items, initial_epoch=2, epochs=3)
    assert start + end == whole
    assert start[: len(dataset)] != end


def test_compiled_fit_with_several_lengths():
    sequences = make_sequences(60)
    dataset = SequenceDataset(sequences, batch_size=16)
    assert len(dataset.bucket_lengths) > 1
    model = keras.Sequential(
        [
            keras.layers.Embedding(int(sequences[-1][-1]) + 1, 4),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="sgd", loss="mse")
    history = model.fit(dataset, shuffle=False, verbose=0, epochs=2)
    assert np.all(np.isfinite(history.history["loss"]))


def test_timestamps_come_beside_the_items_they_belong_to():
    sequences = make_sequences()
    start = 1_700_000_000
    # The time of an item tells which one it is.
    times = [start + 60 * sequence for sequence in sequences]
    options = {"max_length": 12, "batch_size": 16, "shuffle": True}
    dataset = SequenceDataset(sequences, timestamps=times, **options)
    plain = SequenceDataset(sequences, **options)
    first_item = {int(i): int(s[0]) for s in sequences for i in s}
    for ((items, seconds), targets), expected in zip(
        batches(dataset), batches(plain), strict=True
    ):
        np.testing.assert_array_equal(items, expected[0])
        np.testing.assert_array_equal(targets, expected[1])
        assert seconds.shape == items.shape and seconds.dtype == "int32"
        real = items > 0
        assert not seconds[~real].any()
        since = [60 * (i - first_item[i]) for i in items[real].tolist()]
        assert seconds[real].tolist() == since


def test_timestamps_that_do_not_fit_raise():
    with pytest.raises(ValueError, match="1 sequences for 2 users"):
        SequenceDataset([[1, 2], [3, 4]], timestamps=[[0, 1]])
