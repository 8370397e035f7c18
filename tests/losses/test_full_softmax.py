import numpy as np
import pytest

from keras_bft.losses import FullSoftmax
from tests.gradients import gradient_function
from tests.losses.catalogue import catalogue
from tests.losses.catalogue import real_positions


def test_gradient_function_equal_float64():
    targets, states, table = catalogue()
    y, h = real_positions(targets, states)
    items = table[1:].astype("float64")
    scores = h @ items.T
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = -np.log(probabilities[np.arange(len(y)), y - 1]).mean()
    residual = (probabilities - np.eye(len(items))[y - 1]) / len(y)

    value, (states_gradient, table_gradient) = gradient_function(
        lambda states, table: FullSoftmax().from_states(targets, states, table)
    )(states, table)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(
        states_gradient[targets != 0], residual @ items, atol=1e-6
    )
    np.testing.assert_allclose(table_gradient[1:], residual.T @ h, atol=1e-6)
