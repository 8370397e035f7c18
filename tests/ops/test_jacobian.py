import functools
import math

import keras
import numpy as np
import pytest

from keras_bft.ops import feed_forward_jacobian
from keras_bft.ops import gated_feed_forward_jacobian
from keras_bft.ops import layer_norm_jacobian
from keras_bft.ops import mean_feed_forward_jacobian
from keras_bft.ops import mean_gated_feed_forward_jacobian
from keras_bft.ops import rms_norm_jacobian
from tests.ops.arrays import SHAPES
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import weighted_sum
from tests.ops.reference_gradients import assert_gradients_match
from tests.reference.bft_reference import diagonal_jacobian

gelu_tanh = functools.partial(keras.activations.gelu, approximate=True)

# A Keras activation beside its definition in float64.
ACTIVATIONS = [
    ("linear", lambda x: x),
    ("relu", lambda x: np.maximum(x, 0.0)),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.2 * x)),
    ("gelu", lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / 2**0.5))),
    (
        gelu_tanh,
        lambda x: (
            0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
        ),
    ),
    ("silu", lambda x: x / (1 + np.exp(-x))),
    ("tanh", np.tanh),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ("softplus", lambda x: np.log1p(np.exp(x))),
    ("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    ("mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("softsign", lambda x: x / (1 + np.abs(x))),
]
SHAPED = [
    (shape, *ACTIVATIONS[index % len(ACTIVATIONS)])
    for index, shape in enumerate(SHAPES + SHAPES[:4])
]


def label(x):
    return "x".join(map(str, x)) if isinstance(x, tuple) else str(x)[:10]


def make_inputs(rng, shape, hidden=7):
    """State, kernels in (two) and out, biases; with some negative J."""
    width = shape[-1]
    first, second = normals(rng, 2, width, hidden) * width**-0.5
    out = normals(rng, hidden, width) * hidden**-0.5
    return normals(rng, *shape), first, second, out, *normals(rng, 2, hidden)


def close(actual, expected):
    actual = numpy(actual)
    assert actual.dtype == "float32"
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "activation", "exact"), SHAPED, ids=label)
def test_dense_jacobian_equals_finite_differences(shape, activation, exact):
    x, first, _, out, bias, _ = make_inputs(np.random.default_rng(0), shape)
    expected = diagonal_jacobian(
        lambda x: exact(x @ first.astype("float64") + bias) @ out,
        x.astype("float64"),
    )
    actual = run(
        lambda *arrays: feed_forward_jacobian(*arrays, activation),
        *(x @ first + bias, first, out),
    )
    close(actual, expected)


@pytest.mark.parametrize(("shape", "activation", "exact"), SHAPED, ids=label)
def test_gated_jacobian_equals_finite_differences(shape, activation, exact):
    rng = np.random.default_rng(1)
    x, gate, up, out, gate_bias, up_bias = make_inputs(rng, shape)
    expected = diagonal_jacobian(
        lambda x: (
            (
                exact(x @ gate.astype("float64") + gate_bias)
                * (x @ up.astype("float64") + up_bias)
            )
            @ out
        ),
        x.astype("float64"),
    )
    actual = run(
        lambda *arrays: gated_feed_forward_jacobian(*arrays, activation),
        *(x @ gate + gate_bias, x @ up + up_bias, gate, up, out),
    )
    close(actual, expected)


@pytest.mark.parametrize("with_gamma", [False, True])
@pytest.mark.parametrize("shape", SHAPES[1::3], ids=label)
def test_mean_jacobians_are_means_of_the_diagonals(shape, with_gamma):
    rng = np.random.default_rng(2)
    x, gate, up, out, _, _ = make_inputs(rng, shape)
    gamma = normals(rng, shape[-1]) if with_gamma else None
    factor = gamma if with_gamma else 1.0
    for full, mean, inputs in (
        (
            feed_forward_jacobian,
            mean_feed_forward_jacobian,
            (x @ gate, gate, out),
        ),
        (
            gated_feed_forward_jacobian,
            mean_gated_feed_forward_jacobian,
            (x @ gate, x @ up, gate, up, out),
        ),
    ):
        diagonal = numpy(full(*inputs, "silu")) * factor
        close(
            mean(*inputs, "silu", gamma), diagonal.mean(axis=-1, keepdims=True)
        )


def layer_norm(x, gamma, epsilon):
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centered**2, axis=-1, keepdims=True)
    return gamma * centered / np.sqrt(variance + epsilon)


def rms_norm(x, gamma, epsilon):
    return gamma * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon)


NORMS = [(layer_norm_jacobian, layer_norm), (rms_norm_jacobian, rms_norm)]


@pytest.mark.parametrize("shape", SHAPES, ids=label)
def test_norm_jacobians_equal_finite_differences(shape):
    rng = np.random.default_rng(3)
    x = normals(rng, *shape) * 2.0 + 1.0
    gamma = normals(rng, shape[-1])
    options = [(*pair, epsilon) for pair in NORMS for epsilon in (1e-3, 0.5)]
    results = run(
        lambda *arrays: [
            jacobian(*arrays, epsilon) for jacobian, _, epsilon in options
        ],
        x,
        gamma,
    )
    for actual, (_, norm, epsilon) in zip(results, options, strict=True):
        expected = diagonal_jacobian(
            functools.partial(norm, gamma=gamma, epsilon=epsilon),
            x.astype("float64"),
        )
        close(actual, expected)


@pytest.mark.parametrize(("jacobian", "norm"), NORMS)
def test_no_gamma_means_ones(jacobian, norm):
    x = normals(np.random.default_rng(4), 2, 3, 5)
    close(
        jacobian(x, None, 1e-5),
        numpy(jacobian(x, np.ones(5, "float32"), 1e-5)),
    )
    assert np.any(numpy(jacobian(x, None, 1e-5)) > 0.1)


@pytest.mark.parametrize(("jacobian", "norm"), NORMS)
def test_norm_jacobian_of_a_zero_state_is_finite(jacobian, norm):
    actual = numpy(jacobian(np.zeros((1, 2, 4), "float32"), None, 1e-6))
    mean_part = 0.25 if norm is layer_norm else 0.0
    np.testing.assert_allclose(actual, 1e3 * (1 - mean_part), rtol=1e-4)


def test_gradients_of_the_jacobians_equal_finite_differences():
    """Those of tanh and of a norm, whose derivatives are simple."""
    rng = np.random.default_rng(5)
    x, first, _, out, _, _ = make_inputs(rng, (2, 3, 4))
    probe, gamma = normals(rng, 2, 3, 4), normals(rng, 4)
    assert_gradients_match(
        lambda *a: weighted_sum(feed_forward_jacobian(*a, "tanh"), probe),
        lambda a, first, out: np.sum(
            ((1 - np.tanh(a) ** 2) @ (first.T * out)) * probe
        ),
        *(x @ first, first, out),
    )
    assert_gradients_match(
        lambda *a: weighted_sum(layer_norm_jacobian(*a, 1e-3), probe),
        lambda x, gamma: np.sum(
            diagonal_jacobian(
                functools.partial(layer_norm, gamma=gamma, epsilon=1e-3), x
            )
            * probe
        ),
        x,
        gamma,
        step=1e-4,
    )


def test_half_inputs_give_float32():
    rng = np.random.default_rng(6)
    x, first, _, out, _, _ = make_inputs(rng, (2, 3, 4))
    inputs = (x @ first, first, out)
    half = [keras.ops.cast(array, "bfloat16") for array in inputs]
    actual = feed_forward_jacobian(*half, "gelu")
    assert keras.backend.standardize_dtype(actual.dtype) == "float32"
    np.testing.assert_allclose(
        numpy(actual), numpy(feed_forward_jacobian(*inputs, "gelu")), atol=2e-2
    )


def test_activations_that_mix_channels_raise():
    x = np.ones((1, 1, 2), "float32")
    kernel = np.ones((2, 2), "float32")
    with pytest.raises(ValueError, match="Received: activation=softmax"):
        feed_forward_jacobian(x, kernel, kernel, "softmax")
    with pytest.raises(ValueError, match="Received: activation=softmax"):
        gated_feed_forward_jacobian(x, x, kernel, kernel, kernel, "softmax")
