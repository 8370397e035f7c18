import keras
import numpy as np
import pytest

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import kalman_update
from keras_bft.ops import kriging_observation
from keras_bft.ops import observation_log_precision
from keras_bft.ops import predict_log_precision
from keras_bft.ops import project_log_precision
from keras_bft.ops import projected_observation_log_precision
from keras_bft.ops import squared_projection
from keras_bft.ops import value_log_precision
from tests.gradients import gradient_function
from tests.gradients import value_and_gradients
from tests.ops.arrays import SHAPES
from tests.ops.arrays import assert_log_close
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import weighted_sum
from tests.ops.kriging_cases import simple_inputs
from tests.ops.reference_gradients import assert_gradients_match
from tests.reference import bft_reference as reference

PRIOR_DOFS = (0.5, 1.0, 4.0, 30.0)


def make_statistics(rng, shape, heads=2):
    """Residual variances, sample sizes and log-priors of random keys."""
    batch, length, channels = shape
    ones = (batch, length, heads, 1)
    return (
        rng.gamma(1.0, size=(batch, length, heads, channels)).astype("float32"),
        rng.uniform(1.0, 40.0, size=ones).astype("float32"),
        log_precisions(rng, ones),
    )


def full(value):
    return np.full((1, 1, 1, 1), value, "float32")


@pytest.mark.parametrize(
    ("shape", "prior_dof"),
    [(shape, PRIOR_DOFS[(i + i // 4) % 4]) for i, shape in enumerate(SHAPES)],
)
def test_precision_equals_the_reference(shape, prior_dof):
    rng = np.random.default_rng(0)
    residual, sample_size, log_prior = make_statistics(rng, shape)
    expected = reference.observation_precision(
        residual.astype("float64"),
        sample_size.astype("float64"),
        np.exp(log_prior.astype("float64")),
        prior_dof,
    )
    actual = run(
        lambda *arrays: observation_log_precision(*arrays, prior_dof),
        *(residual, sample_size, log_prior),
    )
    assert_log_close(actual, expected)


@pytest.mark.parametrize("level", [-1e4, -100.0, -2.0, 0.0, 3.0, 100.0, 1e4])
def test_one_key_is_as_precise_as_its_value(level):
    actual = observation_log_precision(full(0.0), full(1.0), full(level))
    np.testing.assert_allclose(numpy(actual), level, rtol=1e-6)


def test_precision_rises_with_agreement_and_with_sample_size():
    grid = np.linspace(0.1, 5.0, 12, dtype="float32").reshape(1, 12, 1, 1)
    ones = np.ones_like(grid)
    residual = numpy(observation_log_precision(grid, 8 * ones, 0 * ones))
    assert np.all(np.diff(residual[0, :, 0, 0]) < 0)
    sizes = numpy(observation_log_precision(ones, 1 + grid, 0 * ones))
    assert np.all(np.diff(sizes[0, :, 0, 0]) > 0)


def test_an_unseen_query_has_no_observation():
    actual = observation_log_precision(
        np.zeros((1, 1, 2, 3), "float32"),
        np.array([0.0, 2.0], "float32").reshape(1, 1, 2, 1),
        np.full((1, 1, 2, 1), -5.0, "float32"),
    )
    np.testing.assert_array_equal(numpy(actual)[:, :, 0], NO_OBSERVATION)
    assert np.all(numpy(actual)[:, :, 1] > -5.0)
    prior = np.zeros((1, 1, 3), "float32")
    _, _, gain = kalman_update(prior, prior, prior, actual[:, :, 0])
    np.testing.assert_array_equal(numpy(gain), 0.0)


def test_gradients_equal_finite_differences():
    rng = np.random.default_rng(1)
    inputs = make_statistics(rng, (2, 3, 4))
    probe = normals(rng, 2, 3, 2, 4)
    assert_gradients_match(
        lambda *arrays: weighted_sum(
            observation_log_precision(*arrays, 2.0), probe
        ),
        lambda residual, sample_size, log_prior: np.sum(
            np.log(
                reference.observation_precision(
                    residual, sample_size, np.exp(log_prior), 2.0
                )
            )
            * probe
        ),
        *inputs,
    )


def test_the_posterior_is_finite_at_the_extremes():
    residual, size, log_prior = np.meshgrid(
        [0.0, 1e-37, 1e-12, 1.0, 1e12, 1e30],
        [0.0, 1.0, 50.0],
        [-1e4, -28.0, 0.0, 28.0, 1e4],
    )
    arrays = [
        x.astype("float32").reshape(1, -1, 1, 1)
        for x in (residual, size, log_prior)
    ]
    value, gradients = value_and_gradients(
        lambda *arrays: keras.ops.mean(observation_log_precision(*arrays)),
        *arrays,
    )
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@pytest.mark.parametrize("prior_dof", [0.0, -1.0])
def test_a_prior_dof_that_is_not_positive_raises(prior_dof):
    with pytest.raises(ValueError, match=f"Received: prior_dof={prior_dof}"):
        observation_log_precision(full(0.0), full(1.0), full(0.0), prior_dof)


@pytest.mark.parametrize("shape", SHAPES)
def test_projection_equals_the_reference(shape):
    batch, length, channels = shape
    rng = np.random.default_rng(2)
    log_precision = log_precisions(rng, (batch, length, 3, channels))
    kernel = normals(rng, 3, channels, 5)
    expected = reference.project_precision(
        np.exp(log_precision.astype("float64")), kernel
    )
    assert_log_close(
        run(project_log_precision, log_precision, kernel), expected
    )
    pooled = 1.0 / np.mean(1.0 / expected, axis=-1, keepdims=True)
    assert_log_close(
        run(
            lambda *x: project_log_precision(*x, pool=True),
            *(log_precision, kernel),
        ),
        pooled,
    )


@pytest.mark.parametrize("pool", [False, True])
def test_projection_of_whole_heads_spreads_over_their_channels(pool):
    rng = np.random.default_rng(3)
    log_precision = log_precisions(rng, (2, 3, 2, 1))
    kernel = normals(rng, 2, 4, 5)
    np.testing.assert_allclose(
        numpy(project_log_precision(log_precision, kernel, pool)),
        numpy(
            project_log_precision(
                np.repeat(log_precision, 4, axis=-1), kernel, pool
            )
        ),
        rtol=1e-5,
        atol=1e-6,
    )


def test_gradients_of_the_projection_equal_finite_differences():
    rng = np.random.default_rng(4)
    log_precision = log_precisions(rng, (2, 3, 2, 4))
    kernel, probe = normals(rng, 2, 4, 5), normals(rng, 2, 3, 5)
    assert_gradients_match(
        lambda *arrays: weighted_sum(project_log_precision(*arrays), probe),
        lambda log_precision, kernel: np.sum(
            np.log(reference.project_precision(np.exp(log_precision), kernel))
            * probe
        ),
        log_precision,
        kernel,
    )


def test_the_projection_is_finite_at_the_extremes():
    rng = np.random.default_rng(5)
    levels = [-1e4, -28.0, 0.0, 28.0, 1e4]
    log_precision = rng.choice(levels, (2, 6, 2, 3)).astype("float32")
    kernel = normals(rng, 2, 3, 5)
    dead = kernel.copy()
    dead[..., 0] = 0.0
    differentiate = gradient_function(
        lambda *arrays: keras.ops.mean(project_log_precision(*arrays))
    )
    for matrix in (kernel, dead):
        value, gradients = differentiate(log_precision, matrix)
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@pytest.mark.parametrize(("pooled", "prior_dof"), [(False, 1.0), (True, 2.0)])
def test_posterior_and_projection_at_once(pooled, prior_dof):
    rng = np.random.default_rng(7)
    residual, size, log_prior = make_statistics(rng, (2, 3, 4))
    if pooled:
        residual = residual[..., :1]
    size[0, 1] = 0.0
    kernel = normals(rng, 2, 4, 5)
    probe = normals(rng, 2, 3, 5)

    def at_once(residual, size, log_prior, kernel):
        squared = squared_projection(kernel, pooled)
        return projected_observation_log_precision(
            residual, size, log_prior, squared, prior_dof
        )

    def in_turn(residual, size, log_prior, kernel):
        return project_log_precision(
            observation_log_precision(residual, size, log_prior, prior_dof),
            kernel,
        )

    arrays = (residual, size, log_prior, kernel)
    np.testing.assert_allclose(
        numpy(run(at_once, *arrays)), numpy(run(in_turn, *arrays)), rtol=1e-5
    )
    _, gradients = value_and_gradients(
        lambda *x: weighted_sum(at_once(*x), probe), *arrays
    )
    _, expected = value_and_gradients(
        lambda *x: weighted_sum(in_turn(*x), probe), *arrays
    )
    for actual, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def test_posterior_and_projection_are_finite_at_the_extremes():
    residual, size, log_prior = np.meshgrid(
        [0.0, 1e-37, 1e-12, 1.0, 1e12, 1e30],
        [0.0, 1.0, 50.0],
        [-1e4, -28.0, 0.0, 28.0, 1e4],
    )
    arrays = [
        x.astype("float32").reshape(1, -1, 2, 1)
        for x in (residual, size, log_prior)
    ]
    value, gradients = value_and_gradients(
        lambda *arrays: keras.ops.mean(
            projected_observation_log_precision(*arrays)
        ),
        *arrays,
        np.ones((2, 3), "float32"),
    )
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def observed_precision(inputs, log_precision, spread, gamma, kernel, out):
    """From the state's precision to that of the projected observation."""
    observed = kriging_observation(
        inputs["query"],
        inputs["key"],
        inputs["value"],
        log_precision,
        value_log_precision(log_precision, spread, gamma, kernel),
        inputs["mask"],
    )
    return observed, project_log_precision(
        observation_log_precision(*observed[1:]), out
    )


def test_agreement_of_very_precise_values_has_gradients():
    def function(variance, sample_size, log_prior):
        return keras.ops.sum(
            projected_observation_log_precision(
                variance, sample_size, log_prior, np.ones((1, 1), "float32")
            )
        )

    one = np.ones((1, 1, 1, 1), "float32")
    for level in (0.0, 112.0):
        value, gradients = value_and_gradients(
            function, 0 * one, 2 * one, level * one
        )
        # log(n^2 p), and no residual that could shrink.
        np.testing.assert_allclose(value, np.log(4.0) + level, rtol=1e-6)
        for gradient, wanted in zip(gradients, (0.0, 1.0, 1.0), strict=True):
            np.testing.assert_allclose(gradient.item(), wanted, rtol=1e-5)


def test_scaling_stream_and_precision_leaves_the_observation_as_it_was():
    rng = np.random.default_rng(6)
    inputs = simple_inputs("causal")
    log_precision = log_precisions(rng, (2, 5, 12))
    spread = rng.uniform(0.5, 2.0, size=(2, 5)).astype("float32")
    gamma, kernel = normals(rng, 12), normals(rng, 12, 2, 3)
    out = normals(rng, 4, 3, 12)
    _, expected = observed_precision(
        inputs, log_precision, spread, gamma, kernel, out
    )
    for factor in (0.1, 30.0):
        # The norm divides the factor out of queries, keys and values.
        _, actual = observed_precision(
            inputs,
            log_precision - np.float32(2 * np.log(factor)),
            factor * spread,
            gamma,
            kernel,
            out,
        )
        np.testing.assert_allclose(numpy(actual), numpy(expected), atol=1e-4)


def test_padding_goes_through_the_whole_filter_finitely():
    """Observe, update and predict where some rows see nothing at all."""
    rng = np.random.default_rng(7)
    inputs = simple_inputs("blind")
    state, log_precision = (
        normals(rng, 2, 5, 12),
        log_precisions(rng, (2, 5, 12)),
    )
    kernel, out = normals(rng, 12, 2, 3), normals(rng, 4, 3, 12)

    def step(state, log_precision, query, key, value, kernel, out, strength):
        arrays = {"query": query, "key": key, "value": value}
        observed, observed_log_precision = observed_precision(
            {**inputs, **arrays},
            log_precision,
            keras.ops.std(state, axis=-1),
            None,
            kernel,
            out,
        )
        innovation = keras.ops.einsum("bthc,hcd->btd", observed.estimate, out)
        new_state, posterior, gain = kalman_update(
            *(state, log_precision, innovation, observed_log_precision),
            strength,
        )
        return (
            new_state,
            predict_log_precision(posterior, 0.1 * state, -2.0),
            gain,
        )

    def scalar(*arrays):
        return sum(keras.ops.mean(x) for x in step(*arrays))

    arrays = (state, log_precision, inputs["query"], inputs["key"])
    arrays = (*arrays, inputs["value"], kernel, out)
    differentiate = gradient_function(scalar)
    for strength in (0.0, 0.5, 1.0):
        value, gradients = differentiate(*arrays, np.float32(strength))
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    new_state, _, gain = step(*arrays, 1.0)
    # The mask's first query and last row see nothing.
    unseen = np.zeros((2, 5), bool)
    unseen[:, 0] = unseen[-1] = True
    np.testing.assert_array_equal(numpy(gain)[unseen], 0.0)
    np.testing.assert_array_equal(numpy(new_state)[unseen], state[unseen])
    assert np.all(numpy(gain)[~unseen] > 0.0)


def test_one_prior_degree_of_freedom_is_the_default():
    statistics = full(0.7), full(3.0), full(0.2)
    np.testing.assert_array_equal(
        numpy(observation_log_precision(*statistics)),
        numpy(observation_log_precision(*statistics, prior_dof=1.0)),
    )


def test_each_token_is_projected_by_itself():
    # The variances of one token are e^150 times those of the other.
    one = np.ones((1, 2, 1, 1), "float32")
    log_prior = np.array([0.0, -150.0], "float32").reshape(1, 2, 1, 1)
    result = projected_observation_log_precision(
        0.0 * one, one, log_prior, np.array([[4.0]], "float32")
    )
    np.testing.assert_allclose(
        numpy(result)[0, :, 0], [-np.log(4.0), -150.0 - np.log(4.0)], rtol=1e-5
    )
