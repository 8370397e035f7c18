import keras
import numpy as np
import pytest

from keras_bft.losses._negatives import draw_other_items
from keras_bft.losses._negatives import negative_losses


def test_draws_are_uniform_over_the_other_items():
    num_draws = 60_000
    targets = np.array([1, 3, 5], "int32")
    draws = keras.ops.convert_to_numpy(
        draw_other_items(targets, 5, num_draws, seed=2)
    )
    for target, row in zip(targets, draws, strict=True):
        counts = np.bincount(row, minlength=6)
        others = [i for i in range(1, 6) if i != target]
        assert counts[0] == counts[target] == 0
        deviation = np.sqrt(num_draws * 0.25 * 0.75)
        assert np.all(np.abs(counts[others] - num_draws / 4) < 5 * deviation)


@pytest.mark.parametrize("num_negatives", [1, 32, 33, 70])
def test_losses_equal_float64_in_any_number_of_rounds(num_negatives):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(4, 3)).astype("float32")
    table = rng.normal(size=(9, 3)).astype("float32")
    negatives = rng.integers(1, 9, size=(4, num_negatives)).astype("int32")
    scores = np.einsum("pd,pkd->pk", states.astype("float64"), table[negatives])
    expected = -np.log(1 - 1 / (1 + np.exp(-scores))).sum(1)
    losses = negative_losses(
        *map(keras.ops.convert_to_tensor, (states, table, negatives))
    )
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(losses), expected, rtol=1e-5
    )


def test_a_catalogue_of_one_item_has_no_negatives():
    with pytest.raises(ValueError, match="Received: num_items=1"):
        draw_other_items(np.array([1], "int32"), 1, 2, seed=0)
