"""Update and Predict: the algebra of log-precisions."""

import functools
from typing import Any

import keras
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_bft.layers import KalmanResidual
from keras_bft.ops import head_log_precision
from keras_bft.ops import kalman_update
from keras_bft.ops import log_mean_precision
from keras_bft.ops import normalized_log_precision
from keras_bft.ops import predict_log_precision
from keras_bft.ops import unit_snr_log_precision
from keras_bft.ops import value_log_precision
from tests.ops.arrays import normals
from tests.properties.programs import Program
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import numbers

# Batch, length, width, and widths of the state's and the other precision.
SIZES = [(1, 1, 1, 1, 1), (2, 3, 4, 4, 4), (2, 3, 4, 1, 4), (2, 3, 4, 4, 1)]
sizes = st.sampled_from(SIZES)
dtypes = st.sampled_from(("float32", "float16", "bfloat16"))
UPDATED = ("state", "prior", "innovation", "observed", "strength")


@functools.cache
def update(sizes: Any, dtype: str) -> Program:
    """`KalmanResidual`, and the gain in it."""
    policy = dtype if dtype == "float32" else f"mixed_{dtype}"
    layer = KalmanResidual(dtype=policy)

    def run(
        state: Any, prior: Any, innovation: Any, observed: Any, strength: Any
    ) -> Any:
        arguments = (state, prior, innovation, observed, strength)
        return (*layer(*arguments), kalman_update(*arguments)[-1])

    half = {"state": dtype, "innovation": dtype}
    return Program(run, UPDATED, dtypes=half)


def update_arrays(sizes: Any, drawn: Any) -> dict[str, Any]:
    batch, length, width, first, second = sizes
    rng = drawn.rng()
    return {
        "state": drawn.values(rng, batch, length, width),
        "prior": drawn.log_precision(rng, batch, length, first),
        "innovation": normals(rng, batch, length, width),
        "observed": drawn.log_precision(rng, batch, length, second),
        "strength": np.float32(drawn.strength),
    }


@functools.cache
def predict(sizes: Any) -> Program:
    """`predict_log_precision`, and without a Jacobian and without noise."""

    def run(prior: Any, jacobian: Any, log_noise: Any) -> Any:
        return (
            predict_log_precision(prior, jacobian, log_noise),
            predict_log_precision(prior, None, log_noise),
            predict_log_precision(prior, jacobian, None),
        )

    return Program(run, ("prior", "jacobian", "log_noise"))


def predict_arrays(sizes: Any, drawn: Any) -> dict[str, Any]:
    batch, length, width, first, second = sizes
    rng = drawn.rng()
    scale = rng.choice([1.0, 1e3])
    jacobian = scale * normals(rng, batch, length, second)
    # A network that cancels the state.
    jacobian[0, 0, 0] = -1.0
    return {
        "prior": drawn.log_precision(rng, batch, length, first),
        "jacobian": jacobian.astype("float32"),
        "log_noise": drawn.log_precision(rng, first),
    }


@cases(12)
@given(sizes, dtypes, numbers)
def test_update(sizes, dtype, drawn):
    arrays = update_arrays(sizes, drawn)
    run = update(sizes, dtype)(**arrays)
    assert_finite(run)
    state, posterior, gain = run[0]
    exact = {name: x.astype("float64") for name, x in arrays.items()}
    prior, observed = np.exp(exact["prior"]), np.exp(exact["observed"])
    total = exact["strength"] * prior + observed
    np.testing.assert_allclose(posterior, np.log(total), atol=1e-4)
    np.testing.assert_allclose(gain, observed / total, rtol=1e-3, atol=1e-30)
    tolerance = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    expected = exact["state"] + observed / total * exact["innovation"]
    assert_close([state], [expected], tolerance)
    if drawn.strength == 1:
        assert np.all(
            posterior >= np.maximum(exact["prior"], exact["observed"]) - 1e-5
        )
    if drawn.strength == 0:
        assert np.all(gain == 1)


@cases(6)
@given(sizes, numbers, st.floats(0.1, 20.0))
def test_units_and_levels_of_an_update(sizes, drawn, more):
    arrays = update_arrays(sizes, drawn)
    more = np.float32(more)
    run = update(sizes, "float32")
    (_, posterior, gain), _ = run(**arrays)
    (_, moved, same), _ = run(
        **arrays | {name: arrays[name] + more for name in ("prior", "observed")}
    )
    np.testing.assert_allclose(moved, posterior + more, atol=1e-4)
    np.testing.assert_allclose(same, gain, rtol=1e-3, atol=1e-6)
    (_, up, more_gain), _ = run(
        **arrays | {"observed": arrays["observed"] + more}
    )
    assert np.all(up >= posterior - 1e-5)
    assert np.all(more_gain >= gain - 1e-6)
    (_, up, less_gain), _ = run(**arrays | {"prior": arrays["prior"] + more})
    assert np.all(up >= posterior - 1e-5)
    assert np.all(less_gain <= gain + 1e-6)


@cases(12)
@given(sizes, numbers, st.floats(0.1, 20.0))
def test_predict(sizes, drawn, more):
    arrays = predict_arrays(sizes, drawn)
    run = predict(sizes)(**arrays)
    assert_finite(run)
    (both, noise_alone, network_alone), _ = run
    exact = {name: x.astype("float64") for name, x in arrays.items()}
    factor = (1.0 + exact["jacobian"]) ** 2 + 1e-6
    if exact["prior"].shape[-1] == 1:
        factor = factor.mean(axis=-1, keepdims=True)
    variance, noise = np.exp(-exact["prior"]), np.exp(exact["log_noise"])
    for actual, expected in (
        (both, factor * variance + noise),
        (noise_alone, variance + noise),
        (network_alone, factor * variance),
    ):
        np.testing.assert_allclose(actual, -np.log(expected), atol=1e-3)
    assert np.all(noise_alone <= exact["prior"] + 1e-5)
    noisier = {"log_noise": arrays["log_noise"] + np.float32(more)}
    (lower, *_), _ = predict(sizes)(**arrays | noisier)
    assert np.all(lower <= both + 1e-5)
    assert np.all(lower <= -exact["log_noise"] - more + 1e-4)


@functools.cache
def conversions(width: int) -> Program:
    """Means, starts, and what norms and value kernels make of precisions."""

    def run(log_precision: Any, state: Any, gamma: Any, kernel: Any) -> Any:
        spread = keras.ops.sqrt(keras.ops.var(state, axis=-1) + 1e-6)
        return (
            log_mean_precision(log_precision),
            unit_snr_log_precision(state),
            normalized_log_precision(log_precision, spread, gamma),
            value_log_precision(log_precision, spread, gamma, kernel),
            head_log_precision(log_precision, kernel),
        )

    return Program(run, ("log_precision", "state", "gamma", "kernel"))


@cases(10)
@given(
    st.sampled_from([(1, 1, 1, 1, 1), (2, 3, 4, 2, 2), (2, 3, 1, 2, 2)]),
    numbers,
)
def test_conversions(sizes, drawn):
    batch, length, width, heads, channels = sizes
    rng = drawn.rng()
    dim = heads * channels
    arrays = {
        "log_precision": drawn.log_precision(rng, batch, length, width),
        "state": drawn.values(rng, batch, length, dim),
        "gamma": normals(rng, dim),
        "kernel": normals(rng, dim, heads, channels),
    }
    # A dead channel, and a head that reads nothing.
    arrays["gamma"][0] = 0.0
    arrays["kernel"][:, 0] *= np.float32(drawn.value[0] != 0)
    run = conversions(width)(**arrays)
    assert_finite(run)
    (mean, _, _, of_values, of_heads), _ = run
    log_precision = arrays["log_precision"].astype("float64")
    np.testing.assert_allclose(
        mean, np.log(np.exp(log_precision).mean(-1)), atol=1e-4
    )
    smallest, largest = log_precision.min(-1), log_precision.max(-1)
    assert np.all(of_heads >= smallest[..., None] - 1e-4)
    assert np.all(of_heads <= largest[..., None] + 1e-4)
    # The stream in other units: values are as precise as they were.
    scale = np.float32(8.0)
    (_, start, *_), _ = run
    arrays |= {
        "state": scale * arrays["state"],
        "log_precision": arrays["log_precision"] - 2 * np.log(scale),
    }
    (_, after, _, scaled, _), _ = conversions(width)(**arrays)
    if drawn.value[0] > 1e-2 and dim > 1:
        assert_close([scaled, after], [of_values, start - 2 * np.log(8)], 1e-3)
