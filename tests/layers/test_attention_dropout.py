import keras
import numpy as np
import pytest

from keras_bft.layers import AttentionDropout
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import variable_gradients

MODES = ("renormalized", "inverted")


def weights(*shape, seed=0):
    """Positive rows that sum to one."""
    raw = np.random.default_rng(seed).uniform(0.1, 1.0, size=shape)
    return (raw / raw.sum(-1, keepdims=True)).astype("float32")


def test_config():
    check_config(AttentionDropout, rate=0.25, mode="inverted", seed=3)


def test_saving(tmp_path):
    check_saving(lambda: AttentionDropout(0.5), [weights(2, 1, 3, 4)], tmp_path)


def test_output_spec():
    check_output_spec(
        lambda: AttentionDropout(0.5, dtype="float32"), [weights(2, 1, 3, 4)]
    )


def test_compiled():
    check_compiled(lambda: AttentionDropout(0.5), [weights(2, 1, 3, 4)])


@pytest.mark.parametrize("mode", MODES)
def test_changes_nothing_outside_training_or_at_rate_zero(mode):
    x = weights(2, 2, 3, 5)
    layer = AttentionDropout(0.5, mode, seed=1)
    np.testing.assert_array_equal(numpy(layer(x)), x)
    layer = AttentionDropout(0.0, mode, seed=1)
    np.testing.assert_array_equal(numpy(layer(x, training=True)), x)


def test_renormalized_survivors_keep_their_ratios_and_sum_to_one():
    x = weights(4, 2, 8, 6).astype("float64")
    dropped = numpy(AttentionDropout(0.5, seed=2)(x, training=True))
    kept = dropped > 0
    assert 0.4 < kept.mean() < 0.6
    survived = kept.any(-1, keepdims=True)
    total = np.where(kept, x, 0).sum(-1, keepdims=True)
    expected = np.where(kept, x, 0) / np.where(survived, total, 1)
    np.testing.assert_allclose(dropped, expected, rtol=1e-6)


def test_inverted_survivors_are_divided_by_the_share_kept():
    x = weights(4, 2, 8, 6)
    dropped = numpy(
        AttentionDropout(0.25, "inverted", seed=2)(x, training=True)
    )
    kept = dropped > 0
    assert 0.65 < kept.mean() < 0.85
    np.testing.assert_allclose(
        dropped, np.where(kept, x / 0.75, 0.0), rtol=1e-6
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_loses_every_key_is_zero_with_finite_gradients(mode):
    # One key a row and a rate of a half: about half of the rows lose it.
    layer = AttentionDropout(0.5, mode, seed=4)
    variable = keras.Variable(np.ones((8, 2, 4, 1), "float32"))
    dropped = numpy(layer(variable.value, training=True))
    assert np.any(dropped == 0) and np.any(dropped > 0)
    value, (gradient,) = variable_gradients(
        lambda: keras.ops.sum(layer(variable.value, training=True)), [variable]
    )
    assert np.isfinite(value) and np.all(np.isfinite(gradient))


def test_the_seed_decides_and_each_call_draws_anew():
    x = weights(4, 2, 8, 6)
    first, again = (AttentionDropout(0.5, seed=7) for _ in range(2))
    one, two = numpy(first(x, training=True)), numpy(first(x, training=True))
    assert np.any(one != two)
    np.testing.assert_array_equal(numpy(again(x, training=True)), one)


@pytest.mark.parametrize(
    "arguments", [{"rate": 1.0}, {"rate": -0.1}, {"rate": 0.1, "mode": "none"}]
)
def test_wrong_arguments_raise(arguments):
    with pytest.raises(ValueError, match="Received: (rate|mode)="):
        AttentionDropout(**arguments)
