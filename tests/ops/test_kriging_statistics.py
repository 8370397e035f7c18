import keras
import numpy as np
import pytest

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_statistics
from tests.gradients import gradient_function
from tests.ops.arrays import SHAPES
from tests.ops.arrays import assert_log_close
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import weighted_sum

HEADS, VALUE_HEADS = 4, 2


def make_weights(rng, batch, length, num_keys):
    """Rows that sum to one, the last of them to zero."""
    weights = rng.random((batch, HEADS, length, num_keys)) ** 3
    weights = weights / weights.sum(axis=-1, keepdims=True)
    weights[-1, :, -1] = 0.0
    return weights.astype("float32")


def moments(weights, value, log_precision):
    """The four statistics from their definitions, in float64."""
    weights, value, log_precision = (
        np.asarray(x, "float64") for x in (weights, value, log_precision)
    )
    groups = HEADS // VALUE_HEADS
    value = np.repeat(value, groups, axis=2)
    precision = np.repeat(np.exp(log_precision), groups, axis=2)
    estimate = np.einsum("bhts,bshc->bthc", weights, value)
    deviation = value[:, None] - estimate[:, :, None]
    residual = np.einsum("bhts,btshc->bthc", weights, deviation**2)
    squared = np.einsum("bhts,bhts->bth", weights, weights)
    seen = squared > 0
    sample_size = np.where(seen, 1.0 / np.where(seen, squared, 1.0), 0.0)
    prior = np.einsum("bhts,bsh->bth", weights, precision)
    return estimate, residual, sample_size, prior


@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_equal_their_definitions(shape):
    batch, num_keys, channels = shape
    rng = np.random.default_rng(0)
    weights = make_weights(rng, batch, 3, num_keys)
    value = normals(rng, batch, num_keys, VALUE_HEADS, channels)
    log_precision = log_precisions(rng, (batch, num_keys, VALUE_HEADS))
    estimate, residual, sample_size, prior = moments(
        weights, value, log_precision
    )
    observed = run(kriging_statistics, weights, value, log_precision)
    np.testing.assert_allclose(
        numpy(observed.estimate), estimate, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        numpy(observed.residual_variance), residual, rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(
        numpy(observed.effective_sample_size)[..., 0], sample_size, rtol=1e-4
    )
    seen = prior > 0
    log_prior = numpy(observed.log_prior_precision)[..., 0]
    assert_log_close(log_prior[seen], prior[seen])
    np.testing.assert_array_equal(log_prior[~seen], NO_OBSERVATION)
    np.testing.assert_allclose(
        numpy(run(kriging_estimate, weights, value)),
        estimate,
        rtol=1e-4,
        atol=1e-6,
    )


def test_residual_variance_ignores_a_common_offset():
    rng = np.random.default_rng(1)
    weights = make_weights(rng, 2, 5, 6)
    value = normals(rng, 2, 6, VALUE_HEADS, 8) + 1000.0
    log_precision = np.zeros((2, 6, VALUE_HEADS), "float32")
    _, residual, _, _ = moments(weights, value, log_precision)
    for variance, expected in (
        ("channel", residual),
        ("head", residual.mean(axis=-1, keepdims=True)),
    ):
        observed = kriging_statistics(weights, value, variance=variance)
        np.testing.assert_allclose(
            numpy(observed.residual_variance), expected, rtol=1e-3
        )


def test_identical_values_have_no_residual_variance():
    rng = np.random.default_rng(2)
    weights = make_weights(rng, 2, 5, 6)
    value = np.full((2, 6, VALUE_HEADS, 3), 1234.5, "float32")
    residual = run(kriging_statistics, weights, value).residual_variance
    np.testing.assert_array_equal(numpy(residual), 0.0)


def test_residual_variance_is_never_negative():
    rng = np.random.default_rng(6)
    # Rounding alone is left: the first key, far from the rest, has no weight.
    weights = make_weights(rng, 2, 64, 6) * (np.arange(6) > 0)
    weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-9)
    value = np.full((2, 6, VALUE_HEADS, 3), 10.1, "float32")
    value[:, 0] = 0.0
    observed = run(kriging_statistics, weights.astype("float32"), value)
    residual = numpy(observed.residual_variance)
    assert np.all(residual >= 0.0)
    np.testing.assert_allclose(residual, 0.0, atol=1e-3)


def test_hidden_values_do_not_spoil_the_visible():
    """Padding may hold anything finite, also in front."""
    rng = np.random.default_rng(3)
    visible = np.arange(6) >= 2
    weights = make_weights(rng, 2, 5, 6) * visible
    weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-9)
    value = normals(rng, 2, 6, VALUE_HEADS, 3)
    value[:, ~visible] = 1e5
    log_precision = log_precisions(rng, (2, 6, VALUE_HEADS))
    log_precision[:, ~visible] = 1e4
    mask = np.broadcast_to(visible, (2, 1, 6))
    observed = run(kriging_statistics, weights, value, log_precision, mask)
    log_precision[:, ~visible] = 0.0
    _, residual, _, prior = moments(weights, value, log_precision)
    np.testing.assert_allclose(
        numpy(observed.residual_variance), residual, rtol=1e-3, atol=1e-6
    )
    seen = prior > 0
    assert_log_close(
        numpy(observed.log_prior_precision)[..., 0][seen], prior[seen]
    )


def test_without_differentiation_only_the_estimate_has_gradients():
    rng = np.random.default_rng(4)
    weights = make_weights(rng, 2, 3, 4)
    value = normals(rng, 2, 4, VALUE_HEADS, 3)
    log_precision = log_precisions(rng, (2, 4, VALUE_HEADS))
    probe = normals(rng, 2, 3, HEADS, 3)

    def differentiate(flag):
        def function(estimate_factor, factor, *arrays):
            observed = kriging_statistics(*arrays, differentiate=flag)
            return estimate_factor * weighted_sum(
                observed.estimate, probe
            ) + factor * sum(keras.ops.sum(x) for x in observed[1:])

        call = gradient_function(function)
        one, zero = np.float32(1.0), np.float32(0.0)
        arrays = (weights, value, log_precision)
        return call(one, zero, *arrays), call(zero, one, *arrays)

    (value_full, full), (statistic_full, statistics_full) = differentiate(True)
    (value_plug, plug), (statistic_plug, statistics_plug) = differentiate(False)
    np.testing.assert_allclose(
        [value_plug, statistic_plug], [value_full, statistic_full], rtol=1e-6
    )
    for actual, wanted in zip(plug[2:], full[2:], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    # Weights and values carry the gradient of the estimate.
    assert np.any(full[2] != 0.0) and np.any(full[3] != 0.0)
    for gradient in statistics_plug[2:]:
        np.testing.assert_array_equal(gradient, 0.0)
    for gradient in statistics_full[2:]:
        assert np.any(gradient != 0.0)


def test_one_key_and_no_key():
    weights = np.zeros((1, HEADS, 2, 3), "float32")
    weights[:, :, 0, 1] = 1.0
    rng = np.random.default_rng(5)
    value = normals(rng, 1, 3, VALUE_HEADS, 2)
    log_precision = log_precisions(rng, (1, 3, VALUE_HEADS))
    observed = [
        numpy(x) for x in run(kriging_statistics, weights, value, log_precision)
    ]
    repeated = np.repeat(value[:, 1], 2, axis=1)
    np.testing.assert_allclose(observed[0][:, 0], repeated, rtol=1e-6)
    np.testing.assert_allclose(observed[1], 0.0, atol=1e-6)
    np.testing.assert_array_equal(observed[2][:, 0], 1.0)
    np.testing.assert_allclose(
        observed[3][0, 0, :, 0],
        np.repeat(log_precision[0, 1], 2),
        rtol=1e-5,
        atol=1e-6,
    )
    np.testing.assert_array_equal(observed[0][:, 1], 0.0)
    np.testing.assert_array_equal(observed[2][:, 1], 0.0)
    np.testing.assert_array_equal(observed[3][:, 1], NO_OBSERVATION)


def test_bad_arguments_raise():
    weights = np.ones((1, 4, 2, 3), "float32")
    value = np.ones((1, 3, 3, 2), "float32")
    with pytest.raises(ValueError, match="Received: variance=None"):
        kriging_statistics(weights, value[:, :, :2], variance=None)
    for function in (kriging_statistics, kriging_estimate):
        with pytest.raises(ValueError, match=r"value.shape=.*1, 3, 3, 2"):
            function(weights, value)
