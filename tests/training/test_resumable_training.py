import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset
from keras_bft.losses import SampledSoftmax
from keras_bft.models import SASRec
from keras_bft.training import ResumableTraining

NUM_ITEMS, MAX_LENGTH = 12, 4
SEQUENCES = np.random.default_rng(0).integers(1, NUM_ITEMS + 1, (16, 5))


def falling(epoch, logs):
    logs["falling"] = -epoch


def train(path, dtype=None):
    """The history and the weights of a training, or of what is left of it."""
    keras.utils.set_random_seed(3)
    model = SASRec(
        NUM_ITEMS,
        MAX_LENGTH,
        8,
        num_layers=1,
        bayesian=False,
        seed=3,
        dtype=dtype,
    )
    model.compile(keras.optimizers.Adam(0.02), SampledSoftmax(4))
    model.build((None, MAX_LENGTH))
    dataset = SequenceDataset(
        SEQUENCES,
        MAX_LENGTH,
        batch_size=8,
        bucket_lengths=[MAX_LENGTH],
        seed=3,
    )
    stopping = keras.callbacks.EarlyStopping(
        "falling", mode="max", patience=3, restore_best_weights=True
    )
    training = ResumableTraining(path, stopping)
    dataset.epoch = training.epochs_done
    model.fit(
        dataset,
        shuffle=False,
        verbose=0,
        initial_epoch=training.epochs_done,
        epochs=training.epochs_done if training.stopped else 9,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_end=falling),
            stopping,
            training,
        ],
    )
    rows = [
        {name: value for name, value in row.items() if name != "seconds"}
        for row in training.history
    ]
    return rows, model.get_weights()


def assert_same(first, second):
    assert first[0] == second[0]
    for x, y in zip(first[1], second[1], strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_killed_training_gives_the_numbers_of_a_whole_one(
    dtype, tmp_path, monkeypatch
):
    whole = train(tmp_path / "whole.npz", dtype)
    assert [row["epoch"] for row in whole[0]] == [1, 2, 3, 4]
    save = ResumableTraining.on_epoch_end

    def killed_before_the_third_epoch_is_saved(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt
        save(self, epoch, logs)

    broken = tmp_path / "broken.npz"
    with monkeypatch.context() as patch:
        patch.setattr(
            ResumableTraining,
            "on_epoch_end",
            killed_before_the_third_epoch_is_saved,
        )
        with pytest.raises(KeyboardInterrupt):
            train(broken, dtype)
    assert_same(train(broken, dtype), whole)
    # Killed once more, after it had stopped.
    assert_same(train(broken, dtype), whole)
