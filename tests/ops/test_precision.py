import itertools

import keras
import numpy as np
import pytest

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import kalman_update
from keras_bft.ops import log_mean_precision
from keras_bft.ops import normalized_log_precision
from keras_bft.ops import predict_log_precision
from keras_bft.ops import unit_snr_log_precision
from tests.gradients import value_and_gradients
from tests.ops.arrays import SHAPES
from tests.ops.arrays import assert_log_close
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import weighted_sum
from tests.ops.reference_gradients import assert_gradients_match
from tests.reference import bft_reference as reference

STRENGTHS = (0.0, 0.3, 1.0, 2.5)
EXTREMES = np.array([-1e4, -100.0, np.log(1e-12), 0.0, np.log(1e12), 1e4])


def exp(x):
    return np.exp(np.asarray(x, "float64"))


def extreme_pairs():
    """Every pair of extreme log-precisions, `(1, 1, 36)` each."""
    pairs = np.array(list(itertools.product(EXTREMES, EXTREMES)), "float32")
    return pairs[None, None, :, 0], pairs[None, None, :, 1]


def updates(*arrays, strength):
    """The update with a number as its strength, and with a tensor."""
    return run(
        lambda *tensors: [
            kalman_update(*tensors[:-1], strength),
            kalman_update(*tensors),
        ],
        *arrays,
        np.float32(strength),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_log_mean_precision_is_the_log_of_the_mean(shape):
    log_precision = log_precisions(np.random.default_rng(1), shape)
    assert_log_close(
        run(log_mean_precision, log_precision), exp(log_precision).mean(axis=-1)
    )


@pytest.mark.parametrize("level", [-1e4, -30.0, 30.0, 1e4])
def test_log_mean_precision_does_not_overflow(level):
    log_precision = np.full((1, 2, 3), level, "float32")
    np.testing.assert_allclose(
        numpy(log_mean_precision(log_precision)), level, rtol=1e-6
    )


def test_channels_of_precision_zero_have_no_gradient():
    log_precision = np.array(
        [[[-np.inf] * 3, [0.0, -np.inf, np.log(3.0)]]], "float32"
    )
    mean = numpy(log_mean_precision(log_precision))
    np.testing.assert_allclose(mean, [[-np.inf, np.log(4 / 3)]], rtol=1e-6)

    def known_mean(log_precision):
        mean = log_mean_precision(log_precision)
        return keras.ops.sum(keras.ops.where(mean > -np.inf, mean, 0.0))

    _, (gradient,) = value_and_gradients(known_mean, log_precision)
    np.testing.assert_allclose(
        gradient, [[[0.0, 0.0, 0.0], [0.25, 0.0, 0.75]]], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("shape", "strength"),
    [(shape, STRENGTHS[(i + i // 4) % 4]) for i, shape in enumerate(SHAPES)],
)
def test_kalman_update_equals_the_reference(shape, strength):
    rng = np.random.default_rng(2)
    state, innovation = normals(rng, 2, *shape)
    prior, observed = log_precisions(rng, (2, *shape))
    expected = reference.kalman_update(
        state, exp(prior), innovation, exp(observed), strength
    )
    arrays = (state, prior, innovation, observed)
    for new_state, posterior, gain in updates(*arrays, strength=strength):
        np.testing.assert_allclose(
            numpy(new_state), expected[0], rtol=1e-4, atol=1e-6
        )
        assert_log_close(posterior, expected[1])
        np.testing.assert_allclose(numpy(gain), expected[2], rtol=1e-4)


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("widths", [(1, 1), (1, 5), (5, 1)])
def test_kalman_update_broadcasts_token_precisions(widths, strength):
    rng = np.random.default_rng(3)
    state, innovation = normals(rng, 2, 2, 3, 5)
    prior = log_precisions(rng, (2, 3, widths[0]))
    observed = log_precisions(rng, (2, 3, widths[1]))
    ones = np.ones((2, 3, max(widths)))
    expected = reference.kalman_update(
        state, exp(prior) * ones, innovation, exp(observed) * ones, strength
    )
    arrays = (state, prior, innovation, observed)
    for new_state, posterior, gain in updates(*arrays, strength=strength):
        np.testing.assert_allclose(
            numpy(new_state), expected[0], rtol=1e-4, atol=1e-6
        )
        assert_log_close(posterior, expected[1])
        np.testing.assert_allclose(numpy(gain), expected[2], rtol=1e-4)


def test_kalman_update_at_strength_zero_is_the_residual_connection():
    rng = np.random.default_rng(4)
    state, innovation = normals(rng, 2, 2, 3, 5)
    prior, observed = log_precisions(rng, (2, 2, 3, 5), spread=10.0)
    arrays = (state, prior, innovation, observed)
    for new_state, posterior, gain in updates(*arrays, strength=0.0):
        np.testing.assert_array_equal(numpy(new_state), state + innovation)
        np.testing.assert_array_equal(numpy(gain), 1.0)
        np.testing.assert_allclose(numpy(posterior), observed, atol=1e-5)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_gradients_of_the_update_equal_finite_differences(strength):
    rng = np.random.default_rng(5)
    state, innovation, state_probe, probe = normals(rng, 4, 2, 3, 4)
    prior, observed = log_precisions(rng, (2, 2, 3, 4))

    def function(state, prior, innovation, observed, strength):
        new_state, posterior, gain = kalman_update(
            state, prior, innovation, observed, strength
        )
        return weighted_sum(new_state, state_probe) + weighted_sum(
            posterior + gain**2, probe
        )

    def expected(state, prior, innovation, observed, strength):
        new_state, posterior, gain = reference.kalman_update(
            state, np.exp(prior), innovation, np.exp(observed), strength
        )
        return np.sum(
            new_state * state_probe + (np.log(posterior) + gain**2) * probe
        )

    # A tensor strength is differentiated too, at zero as well.
    arrays = (state, prior, innovation, observed)
    assert_gradients_match(function, expected, *arrays, np.float32(strength))
    # So is a number, which takes formulas of its own.
    assert_gradients_match(
        lambda *arrays: function(*arrays, strength),
        lambda *arrays: expected(*arrays, strength),
        *arrays,
    )


@pytest.mark.parametrize("is_tensor", [False, True])
def test_gradients_are_right_where_prior_and_observation_tie(is_tensor):
    tied = np.full((1, 1, 1), 0.7, "float32")

    def gain(prior, observed):
        strength = keras.ops.ones(()) if is_tensor else 1.0
        return keras.ops.sum(
            kalman_update(0.0, prior, 0.0, observed, strength)[2]
        )

    def posterior(prior, observed):
        strength = keras.ops.ones(()) if is_tensor else 1.0
        return keras.ops.sum(
            kalman_update(0.0, prior, 0.0, observed, strength)[1]
        )

    def predicted(log_precision, noise):
        return keras.ops.sum(predict_log_precision(log_precision, None, noise))

    for function, second, expected in (
        (gain, tied, [-0.25, 0.25]),
        (posterior, tied, [0.5, 0.5]),
        (predicted, -tied, [0.5, -0.5]),
    ):
        _, gradients = value_and_gradients(function, tied, second)
        np.testing.assert_allclose(np.ravel(gradients), expected, rtol=1e-6)


def test_gradient_of_the_strength_is_exact_at_zero():
    prior, observed = np.log([[[3.0]], [[5.0]]]).astype("float32")

    def gain(strength):
        return keras.ops.sum(
            kalman_update(0.0, prior, 1.0, observed, strength)[2]
        )

    def posterior(strength):
        return keras.ops.sum(
            kalman_update(0.0, prior, 1.0, observed, strength)[1]
        )

    # d/ds lambda_obs / (s lambda + lambda_obs) and d/ds log(s lambda + ...)
    _, (gain_slope,) = value_and_gradients(gain, np.zeros((), "float32"))
    _, (slope,) = value_and_gradients(posterior, np.zeros((), "float32"))
    np.testing.assert_allclose([gain_slope, slope], [-0.6, 0.6], rtol=1e-5)


def test_precision_only_grows_in_the_update():
    rng = np.random.default_rng(6)
    prior, observed = log_precisions(rng, (2, 3, 4, 8), spread=3.0)
    state = np.zeros((3, 4, 8), "float32")
    posterior = numpy(kalman_update(state, prior, state, observed)[1])
    assert np.all(posterior >= prior)
    assert np.all(posterior >= observed)
    assert np.any(posterior > prior + 0.1)


def test_no_observation_leaves_the_state_as_it_was():
    rng = np.random.default_rng(7)
    state, innovation = normals(rng, 2, 2, 3, 4)
    prior = log_precisions(rng, (2, 3, 4))
    observed = np.full((2, 3, 4), NO_OBSERVATION, "float32")
    new_state, posterior, gain = kalman_update(
        state, prior, innovation, observed
    )
    np.testing.assert_array_equal(numpy(gain), 0.0)
    np.testing.assert_array_equal(numpy(new_state), state)
    np.testing.assert_array_equal(numpy(posterior), prior)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_update_is_right_at_the_extremes(strength):
    prior, observed = extreme_pairs()
    state = np.ones_like(prior)

    def function(state, prior, innovation, observed, strength):
        new_state, posterior, gain = kalman_update(
            state, prior, innovation, observed, strength
        )
        return keras.ops.sum(new_state + 1e-3 * posterior + gain)

    arrays = (state, prior, state, observed)
    for call, inputs in (
        (function, (*arrays, np.float32(strength))),
        (lambda *arrays: function(*arrays, strength), arrays),
    ):
        value, gradients = value_and_gradients(call, *inputs)
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(g)) for g in gradients)
    _, posterior, gain = kalman_update(*arrays, strength)
    if strength == 0:
        np.testing.assert_array_equal(numpy(gain), 1.0)
        np.testing.assert_array_equal(numpy(posterior), observed)
    else:
        scaled = prior.astype("float64") + np.log(strength)
        np.testing.assert_allclose(
            numpy(posterior),
            np.logaddexp(scaled, observed),
            rtol=1e-6,
            atol=1e-6,
        )
        np.testing.assert_allclose(
            numpy(gain),
            np.exp(-np.logaddexp(0.0, scaled - observed)),
            rtol=1e-5,
            atol=1e-30,
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_states_keep_float32_precisions(dtype):
    rng = np.random.default_rng(8)
    state, innovation = normals(rng, 2, 2, 3, 4)
    prior, observed = log_precisions(rng, (2, 2, 3, 4)) + 40.0
    half = [keras.ops.cast(x, dtype) for x in (state, innovation)]
    results = kalman_update(half[0], prior, half[1], observed)
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in results]
    assert dtypes == [dtype, "float32", "float32"]
    expected = kalman_update(state, prior, innovation, observed)
    np.testing.assert_allclose(
        numpy(keras.ops.cast(results[0], "float32")),
        numpy(expected[0]),
        atol=3e-2,
    )
    np.testing.assert_array_equal(numpy(results[1]), numpy(expected[1]))


def test_float64_and_float32_precisions_meet():
    """NumPy's own arrays are float64; weights are float32."""
    rng = np.random.default_rng(14)
    state, prior, observed = normals(rng, 3, 1, 2, 3)
    for strength in (0.0, 0.5, keras.ops.convert_to_tensor(0.5)):
        expected = kalman_update(state, prior, state, observed, strength)
        for arrays in (
            (state, prior.astype("float64"), state, observed),
            (state, prior, state, observed.astype("float64")),
        ):
            actual = kalman_update(*arrays, strength)
            for result, wanted in zip(actual, expected, strict=True):
                np.testing.assert_allclose(
                    numpy(result), numpy(wanted), rtol=1e-5, atol=1e-6
                )
    np.testing.assert_allclose(
        numpy(predict_log_precision(prior.astype("float64"), state, 0.5)),
        numpy(predict_log_precision(prior, state, 0.5)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_negative_strength_raises():
    x = np.zeros((1, 1, 1), "float32")
    with pytest.raises(ValueError, match="Received: strength=-0.5"):
        kalman_update(x, x, x, x, strength=-0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_prediction_equals_the_reference(shape):
    rng = np.random.default_rng(9)
    log_precision = log_precisions(rng, shape)
    # The library adds 1e-6 to the squared transition.
    jacobian = rng.uniform(-0.7, 2.0, size=shape).astype("float32")
    noise = log_precisions(rng, shape[-1:])
    results = run(
        lambda log_precision, jacobian, noise: [
            predict_log_precision(log_precision, jacobian, noise),
            predict_log_precision(log_precision, jacobian, None),
            predict_log_precision(log_precision, None, noise),
        ],
        *(log_precision, jacobian, noise),
    )
    jacobian = jacobian.astype("float64")
    for actual, options in zip(
        results,
        ((jacobian, exp(noise)), (jacobian, 0.0), (0.0, exp(noise))),
        strict=True,
    ):
        expected = reference.predict_precision(exp(log_precision), *options)
        assert_log_close(actual, expected)


def test_token_prediction_takes_the_mean_variance():
    rng = np.random.default_rng(10)
    log_precision = log_precisions(rng, (2, 3, 1))
    jacobian = rng.uniform(-0.5, 2.0, size=(2, 3, 6)).astype("float32")
    factor = np.mean((1.0 + jacobian) ** 2, axis=-1, keepdims=True)
    expected = 1.0 / (factor / exp(log_precision) + exp(0.5))
    assert_log_close(
        predict_log_precision(log_precision, jacobian, np.float32(0.5)),
        expected,
    )


def test_a_cancelled_channel_keeps_a_finite_precision():
    result = predict_log_precision(
        np.zeros((1, 1, 1), "float32"), -np.ones((1, 1, 1), "float32"), None
    )
    np.testing.assert_allclose(numpy(result), np.log(1e6), rtol=1e-5)


def test_more_process_noise_only_lowers_the_precision():
    rng = np.random.default_rng(11)
    log_precision = log_precisions(rng, (2, 3, 4))
    jacobian = normals(rng, 2, 3, 4)
    noises = np.linspace(-6, 6, 9, dtype="float32")
    precisions = np.stack(
        [
            numpy(predict_log_precision(log_precision, jacobian, noise))
            for noise in noises
        ]
    )
    assert np.all(np.diff(precisions, axis=0) < 0)
    without = numpy(predict_log_precision(log_precision, jacobian, None))
    assert np.all(precisions[0] < without)


def test_gradients_of_the_prediction_equal_finite_differences():
    rng = np.random.default_rng(12)
    log_precision = log_precisions(rng, (2, 3, 4))
    jacobian = rng.uniform(-0.5, 2.0, size=(2, 3, 4))
    noise, probe = log_precisions(rng, (4,)), normals(rng, 2, 3, 4)

    def function(*arrays):
        return weighted_sum(predict_log_precision(*arrays), probe)

    def expected(log_precision, jacobian, noise):
        factor = (1.0 + jacobian) ** 2 + 1e-6
        precision = reference.predict_precision(
            np.exp(log_precision), np.sqrt(factor) - 1.0, np.exp(noise)
        )
        return np.sum(np.log(precision) * probe)

    assert_gradients_match(function, expected, log_precision, jacobian, noise)


def test_the_prediction_is_finite_at_the_extremes():
    log_precision, noise = extreme_pairs()
    for jacobian in (-1.0, 0.0, 1e4):
        value, gradients = value_and_gradients(
            lambda *arrays: keras.ops.sum(predict_log_precision(*arrays)),
            log_precision,
            np.full_like(noise, jacobian),
            noise,
        )
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(g)) for g in gradients)


@pytest.mark.parametrize("width", [1, 5])
def test_normalized_precision_is_that_of_the_scaled_state(width):
    rng = np.random.default_rng(13)
    log_precision = log_precisions(rng, (2, 3, width))
    spread = rng.uniform(0.2, 3.0, size=(2, 3)).astype("float32")
    gamma = normals(rng, 5)
    # Channel variances times the square of `gamma / spread`.
    scale = gamma**2 if width == 5 else np.mean(gamma**2)
    variance = scale / exp(log_precision) / spread[..., None] ** 2
    assert_log_close(
        normalized_log_precision(log_precision, spread, gamma), 1.0 / variance
    )


def test_a_norm_that_removes_a_channel_leaves_it_finite():
    gamma = np.array([0.0, 1.0], "float32")
    result = numpy(
        normalized_log_precision(
            np.zeros((1, 1, 2), "float32"), np.ones((1, 1), "float32"), gamma
        )
    )
    np.testing.assert_allclose(result[0, 0], [np.log(1e12), 0.0], atol=1e-4)


def test_one_token_takes_the_mean_variance_too():
    # One position: its axis is as long as that of a precision of the token.
    jacobian = np.array([0.0, 1.0, 2.0], "float32").reshape(1, 1, 3)
    result = predict_log_precision(
        np.zeros((1, 1, 1), "float32"), jacobian, None
    )
    assert_log_close(result, np.full((1, 1, 1), 3.0 / (1 + 4 + 9)))


@pytest.mark.parametrize("widths", [(1, 4), (4, 1)])
@pytest.mark.parametrize("length", [1, 3])
def test_gradients_of_repeated_precisions_are_summed(widths, length):
    rng = np.random.default_rng(15)
    prior = log_precisions(rng, (2, length, widths[0]))
    observed = log_precisions(rng, (2, length, widths[1]))
    probes = normals(rng, 2, 2, length, 4)
    state = normals(rng, 2, length, 4)

    def function(prior, observed):
        _, posterior, gain = kalman_update(state, prior, state, observed)
        return weighted_sum(posterior, probes[0]) + weighted_sum(
            gain, probes[1]
        )

    def expected(prior, observed):
        total = np.exp(prior) + np.exp(observed)
        gain = np.exp(observed) / total
        return np.sum(np.log(total) * probes[0]) + np.sum(gain * probes[1])

    assert_gradients_match(function, expected, prior, observed)


@pytest.mark.parametrize("length", [1, 3])
def test_gradients_of_a_token_prediction_equal_finite_differences(length):
    rng = np.random.default_rng(16)
    log_precision = log_precisions(rng, (2, length, 1))
    jacobian = rng.uniform(-0.5, 2.0, size=(2, length, 4))
    noise, probe = log_precisions(rng, (1,)), normals(rng, 2, length, 1)

    def function(*arrays):
        return weighted_sum(predict_log_precision(*arrays), probe)

    def expected(log_precision, jacobian, noise):
        factor = np.mean((1.0 + jacobian) ** 2 + 1e-6, axis=-1, keepdims=True)
        variance = factor * np.exp(-log_precision) + np.exp(noise)
        return -np.sum(np.log(variance) * probe)

    assert_gradients_match(function, expected, log_precision, jacobian, noise)


@pytest.mark.parametrize("width", [1, 4])
def test_gradient_of_a_noise_for_all_channels_is_summed(width):
    rng = np.random.default_rng(17)
    log_precision = log_precisions(rng, (2, 3, 4))
    noise, probe = log_precisions(rng, (width,)), normals(rng, 2, 3, 4)
    assert_gradients_match(
        lambda *arrays: weighted_sum(
            predict_log_precision(arrays[0], None, arrays[1]), probe
        ),
        lambda log_precision, noise: (
            -np.sum(np.log(np.exp(-log_precision) + np.exp(noise)) * probe)
        ),
        log_precision,
        noise,
    )


def test_a_state_alone_starts_at_its_own_variance():
    state = 3.0 * normals(np.random.default_rng(18), 2, 3, 5) + 7.0
    expected = 1.0 / np.var(state.astype("float64"), axis=-1, keepdims=True)
    assert_log_close(unit_snr_log_precision(state), expected)
    zeros = np.zeros((1, 2, 4), "float16")
    assert_log_close(unit_snr_log_precision(zeros), np.full((1, 2, 1), 1e12))
    assert_log_close(
        unit_snr_log_precision(zeros, 0.25), np.full((1, 2, 1), 4.0)
    )
