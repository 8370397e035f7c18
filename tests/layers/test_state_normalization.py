import keras
import numpy as np
import pytest

from keras_bft.layers import StateNormalization
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.reference.bft_reference import diagonal_jacobian

KINDS = ("layer", "rms")
each_kind = pytest.mark.parametrize("kind", KINDS)


def states(seed=0):
    return 3.0 * normal(np.random.default_rng(seed), 2, 3, 6) + 1.0


def test_config():
    check_config(StateNormalization, kind="rms", epsilon=1e-3)


@each_kind
def test_saving(kind, tmp_path):
    check_saving(lambda: StateNormalization(kind), [states()], tmp_path)


@each_kind
def test_output_spec(kind):
    check_output_spec(lambda: StateNormalization(kind), [states()])


@each_kind
def test_policies(kind):
    check_policies(
        lambda **kwargs: StateNormalization(kind, **kwargs), [states()]
    )


@each_kind
def test_compiled(kind):
    check_compiled(lambda: StateNormalization(kind), [states()])


@each_kind
def test_equals_the_norm_of_keras_and_returns_its_divisor(kind):
    x = states()
    layer = StateNormalization(kind, epsilon=1e-2)
    layer.build(x.shape)
    randomize(layer)
    keras_norm = {
        "layer": keras.layers.LayerNormalization,
        "rms": keras.layers.RMSNormalization,
    }[kind](epsilon=1e-2)
    keras_norm.build(x.shape)
    keras_norm.set_weights(layer.get_weights())
    normalized, spread = layer(x)
    np.testing.assert_allclose(
        numpy(normalized), numpy(keras_norm(x)), rtol=1e-5, atol=1e-6
    )
    wide = x.astype("float64")
    mean = wide.mean(-1, keepdims=True) if kind == "layer" else 0.0
    expected = np.sqrt(((wide - mean) ** 2).mean(-1) + 1e-2)
    np.testing.assert_allclose(numpy(spread), expected, rtol=1e-5)


def norm_function(kind, gamma, beta, epsilon):
    def norm(x):
        centered = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        spread = np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon)
        return gamma * centered / spread + beta

    return norm


@each_kind
def test_jacobian_equals_finite_differences(kind):
    x = states()
    layer = StateNormalization(kind)
    layer.build(x.shape)
    randomize(layer)
    gamma = numpy(layer.gamma)
    norm = norm_function(kind, gamma, 0.0, layer.epsilon)
    expected = diagonal_jacobian(norm, x.astype("float64"))
    np.testing.assert_allclose(
        numpy(layer.jacobian(x)), expected, rtol=1e-4, atol=1e-5
    )


@each_kind
def test_mean_factor_is_the_mean_of_the_scaled_jacobian(kind):
    x = states()
    layer = StateNormalization(kind, epsilon=0.0)
    _, spread = layer(x)
    scaled = numpy(layer.jacobian(x)) * numpy(spread)[..., None]
    np.testing.assert_allclose(
        scaled.mean(-1), np.full((2, 3), layer.mean_factor), rtol=1e-5
    )


def test_unknown_kind_raises():
    with pytest.raises(ValueError, match="Received: kind='batch'"):
        StateNormalization("batch")


def test_unknown_width_raises():
    with pytest.raises(ValueError, match="Received: shape="):
        StateNormalization().build((None, None, None))
