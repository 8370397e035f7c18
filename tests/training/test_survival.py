"""Trainings at which a badly kept model would break."""

import os

import keras
import numpy as np
import pytest

from keras_bft.losses import FullSoftmax
from keras_bft.models import HSTU
from keras_bft.models import SASRec
from keras_bft.training import TerminateOnNonFinite
from tests.layers.layer_checks import numpy

NIGHTLY = os.environ.get("KERAS_BFT_NIGHTLY") == "1"
STEPS = 2000 if NIGHTLY else 20
NUM_ITEMS, B, T = 30, 8, 6


def batches(steps, rng):
    """Random histories; some of padding alone, some with a hole."""
    items = rng.integers(1, NUM_ITEMS + 1, (steps, B, T))
    targets = rng.integers(1, NUM_ITEMS + 1, (steps, B, T))
    lengths = rng.integers(0, T + 1, (steps, B, 1))
    padding = np.arange(T) < T - lengths
    padding[3::7] = True  # A batch of nothing but padding.
    items[padding], targets[padding] = 0, 0
    items[1::5, :, 3] = 0
    return items.reshape(-1, T), targets.reshape(-1, T)


@pytest.mark.parametrize(
    ("model_class", "policy"),
    [
        (SASRec, "float32"),
        (SASRec, "mixed_bfloat16"),
        (SASRec, "mixed_float16"),
        (HSTU, "mixed_float16"),
        *[(HSTU, name) for name in ("float32", "mixed_bfloat16") if NIGHTLY],
    ],
)
def test_no_weight_is_spoilt(model_class, policy):
    keras.utils.set_random_seed(0)
    model = model_class(
        NUM_ITEMS, max_length=T, embedding_dim=8, dropout=0.2, dtype=policy
    )
    # Ten times what one would choose.
    model.compile(keras.optimizers.Adam(0.05), loss=FullSoftmax())
    items, targets = batches(STEPS, np.random.default_rng(0))
    history = model.fit(
        items,
        targets,
        batch_size=B,
        shuffle=False,
        verbose=0,
        callbacks=[TerminateOnNonFinite(every=10)],
    )
    assert np.isfinite(history.history["loss"]).all()
    assert all(np.isfinite(numpy(w.value)).all() for w in model.weights)
    steps = int(numpy(model.optimizer.iterations))
    # Loss scaling leaves steps out until it has found its scale.
    assert 0.8 * STEPS <= steps <= STEPS
    assert policy == "mixed_float16" or steps == STEPS
    states = numpy(model(items[:B]))
    assert np.isfinite(states).all()
