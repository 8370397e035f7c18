import keras
import numpy as np
import pytest

from keras_bft.losses import BCE
from keras_bft.losses import GBCE
from keras_bft.losses._negatives import draw_other_items
from tests.losses.catalogue import NUM_ITEMS
from tests.losses.catalogue import catalogue
from tests.losses.catalogue import log_sigmoid


@pytest.mark.parametrize("calibration", [0.0, 0.75, 1.0])
def test_value_equals_float64(calibration):
    k = 4
    alpha = k / (NUM_ITEMS - 1)
    beta = alpha * (calibration * (1 - 1 / alpha) + 1 / alpha)
    targets, states, table = catalogue()
    flat = np.maximum(targets.reshape(-1), 1)
    negatives = keras.ops.convert_to_numpy(
        draw_other_items(flat, NUM_ITEMS, k, seed=6)
    ).reshape(targets.shape + (k,))
    items = table.astype("float64")
    losses = []
    for row, column in zip(*np.nonzero(targets), strict=True):
        scores = items @ states[row, column]
        terms = beta * log_sigmoid(scores[targets[row, column]])
        terms += log_sigmoid(-scores[negatives[row, column]]).sum()
        losses.append(-terms / (k + 1))
    value = GBCE(k, calibration).from_states(targets, states, table, seed=6)
    assert float(value) == pytest.approx(np.mean(losses), rel=1e-5)


def test_without_calibration_it_is_bce_over_its_terms():
    targets, states, table = catalogue()
    arguments = (targets, states, table, 8)
    assert float(GBCE(3, 0.0).from_states(*arguments)) == pytest.approx(
        float(BCE(3).from_states(*arguments)) / 4, rel=1e-6
    )


@pytest.mark.parametrize("calibration", [-0.1, 1.1, float("nan"), True, "1"])
def test_bad_calibration_raises(calibration):
    with pytest.raises(ValueError, match="Received: calibration="):
        GBCE(4, calibration)


def test_bad_num_negatives_raise():
    with pytest.raises(ValueError, match="Received: num_negatives=0"):
        GBCE(0)
    targets, states, table = catalogue()
    with pytest.raises(ValueError, match="10 for this.*num_negatives=11"):
        GBCE(11).from_states(targets, states, table)
