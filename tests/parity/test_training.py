"""Backends train alike: same weights and batches, same losses.

Initial weights come from NumPy, dropout is off and the loss samples nothing,
so that nothing random is left to the backend. The optimizer is SGD: Adam makes
a step of full size out of the rounding error of a gradient that vanishes. The
expected losses were written by `python -m tests.parity.test_training` on JAX.
"""

import json
import zlib
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset
from keras_bft.losses import FullSoftmax
from keras_bft.models import SASRec

EXPECTED = Path(__file__).parent / "training_losses.json"
MODELS = {
    "plain": {"bayesian": False},
    "light": {"form": "light"},
    "full": {"form": "full"},
    "token": {"form": "full", "precision": "token", "prior": "mlp"},
}
NUM_ITEMS = 30


def sequences():
    rng = np.random.default_rng(5)
    return [
        rng.integers(1, NUM_ITEMS + 1, size=rng.integers(2, 14))
        for _ in range(40)
    ]


def epoch_losses(options):
    model = SASRec(NUM_ITEMS, 10, 16, dropout=0.0, **options)
    model.build((None, 10))
    for weight in model.trainable_weights:
        # By name, so that the order in which layers are made is free.
        name = weight.path.split("/", 1)[1].encode()
        rng = np.random.default_rng([7, zlib.crc32(name)])
        # Kernels and tables start from numbers of the backend, the rest from
        # constants.
        start = keras.ops.convert_to_numpy(weight)
        shape = tuple(weight.shape)
        start = np.zeros(shape) if shape[1:] > (1,) else start
        weight.assign(start + rng.normal(scale=0.1, size=shape))
    model.compile(keras.optimizers.SGD(0.3), loss=FullSoftmax())
    dataset = SequenceDataset(
        sequences(), 10, batch_size=8, bucket_lengths=[10], seed=1
    )
    # Step by step, as `fit` may read its batches in another order.
    losses = []
    for epoch in range(3):
        dataset.epoch = epoch
        steps = [
            model.train_on_batch(*dataset[index])
            for index in range(len(dataset))
        ]
        losses.append(float(np.mean(steps)))
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_losses_of_three_epochs_are_those_of_the_other_backends(name):
    expected = json.loads(EXPECTED.read_text())[name]
    np.testing.assert_allclose(epoch_losses(MODELS[name]), expected, rtol=1e-4)


if __name__ == "__main__":
    losses = {name: epoch_losses(options) for name, options in MODELS.items()}
    EXPECTED.write_text(json.dumps(losses, indent=1) + "\n")
