import numpy as np
import pytest

from keras_bft.layers import KalmanResidual
from keras_bft.ops import NO_OBSERVATION
from tests.layers.layer_checks import POLICIES
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.reference.bft_reference import kalman_update

B, T, D = 2, 3, 4
WIDTHS = [(D, D), (D, 1), (1, D), (1, 1)]
each_width = pytest.mark.parametrize("widths", WIDTHS)


def inputs(widths=(D, D), seed=0):
    rng = np.random.default_rng(seed)
    return [
        normal(rng, B, T, D),
        normal(rng, B, T, widths[0]),
        normal(rng, B, T, D),
        normal(rng, B, T, widths[1]),
    ]


def test_config():
    check_config(KalmanResidual, strength=0.5, kalman_gain=False)


def test_saving(tmp_path):
    check_saving(lambda: KalmanResidual(0.5), inputs(), tmp_path)


@each_width
def test_output_spec(widths):
    check_output_spec(KalmanResidual, inputs(widths))


def test_policies():
    check_policies(KalmanResidual, inputs())


def test_compiled():
    check_compiled(lambda: KalmanResidual(0.7), inputs())


@each_width
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("given_in_call", [False, True])
def test_equals_the_reference(widths, strength, given_in_call):
    state, prior, innovation, observed = inputs(widths)
    if given_in_call:
        layer, extra = KalmanResidual(0.9), {"strength": np.float32(strength)}
    else:
        layer, extra = KalmanResidual(strength), {}
    outputs = arrays(layer(state, prior, innovation, observed, **extra))
    wide = [x.astype("float64") for x in (state, prior, innovation, observed)]
    expected_state, expected_precision, _ = kalman_update(
        wide[0], np.exp(wide[1]), wide[2], np.exp(wide[3]), strength
    )
    np.testing.assert_allclose(outputs[0], expected_state, atol=1e-5)
    np.testing.assert_allclose(
        outputs[1], np.log(expected_precision), atol=1e-5
    )


@pytest.mark.parametrize("policy", ["float32", *POLICIES])
def test_no_observation_changes_nothing(policy):
    state, prior, innovation, _ = inputs()
    layer = KalmanResidual(dtype=policy)
    nothing = np.full((B, T, 1), NO_OBSERVATION, "float32")
    after, posterior = layer(state, prior, innovation, nothing)
    before = numpy(layer.cast_state(state))
    np.testing.assert_array_equal(numpy(after), before)
    np.testing.assert_allclose(numpy(posterior), prior, rtol=1e-6)


@each_width
def test_without_a_gain_the_innovation_is_added_whole(widths):
    state, prior, innovation, observed = inputs(widths)
    layer = KalmanResidual(0.3, kalman_gain=False)
    after, posterior = layer(state, prior, innovation, observed)
    np.testing.assert_allclose(numpy(after), state + innovation, atol=1e-6)
    usual = KalmanResidual(0.3)(state, prior, innovation, observed)[1]
    np.testing.assert_array_equal(numpy(posterior), numpy(usual))


def test_precision_only_grows():
    state, prior, innovation, observed = inputs()
    posterior = numpy(KalmanResidual()(state, prior, innovation, observed)[1])
    assert np.all(posterior > np.maximum(prior, observed))


def test_log_precisions_of_any_dtype_give_float32():
    state, prior, innovation, observed = inputs()
    expected = arrays(KalmanResidual()(state, prior, innovation, observed))
    wide = [x.astype("float64") for x in (state, prior, innovation, observed)]
    outputs = KalmanResidual()(*wide)
    assert "float32" in str(outputs[1].dtype)
    for actual, wanted in zip(arrays(outputs), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)


def test_negative_strength_raises():
    with pytest.raises(ValueError, match="Received: strength=-1"):
        KalmanResidual(-1)
