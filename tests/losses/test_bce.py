import keras
import numpy as np
import pytest

from keras_bft.losses import BCE
from keras_bft.losses._negatives import draw_other_items
from tests.losses.catalogue import NUM_ITEMS
from tests.losses.catalogue import catalogue
from tests.losses.catalogue import log_sigmoid


@pytest.mark.parametrize("num_negatives", [1, 5])
def test_value_equals_float64(num_negatives):
    targets, states, table = catalogue()
    flat = np.maximum(targets.reshape(-1), 1)
    negatives = keras.ops.convert_to_numpy(
        draw_other_items(flat, NUM_ITEMS, num_negatives, seed=6)
    ).reshape(targets.shape + (num_negatives,))
    items = table.astype("float64")
    total, count = 0.0, 0
    for row, column in zip(*np.nonzero(targets), strict=True):
        scores = items @ states[row, column]
        total -= log_sigmoid(scores[targets[row, column]])
        for j in negatives[row, column]:
            total -= log_sigmoid(-scores[j])
        count += 1
    value = BCE(num_negatives).from_states(targets, states, table, seed=6)
    assert float(value) == pytest.approx(total / count, rel=1e-5)


def test_mean_over_draws_is_the_expectation():
    targets, states, table = catalogue()
    target, state = targets[:1, :1], states[:1, :1]
    scores = table[1:].astype("float64") @ state[0, 0]
    is_target = np.arange(1, NUM_ITEMS + 1) == target[0, 0]
    expected = (
        -log_sigmoid(scores[is_target])[0]
        - 3 * log_sigmoid(-scores[~is_target]).mean()
    )
    values = BCE(3).from_states(
        np.repeat(target, 20_000, axis=1),
        np.repeat(state, 20_000, axis=1),
        table,
        seed=0,
    )
    assert float(values) == pytest.approx(expected, rel=0.02)


def test_bad_arguments_raise():
    with pytest.raises(ValueError, match="Received: num_negatives=-1"):
        BCE(num_negatives=-1)
