import functools
import math

import keras
import numpy as np
import pytest

from keras_bft.ops import activation_derivative
from tests.gradients import value_and_gradients
from tests.ops.arrays import numpy

NOT_ELEMENTWISE = ("glu", "log_softmax", "softmax", "sparsemax")
NAMES = sorted(
    name
    for name in vars(keras.activations)
    if name not in (*NOT_ELEMENTWISE, "deserialize", "get", "serialize")
    and name != "threshold"
    and callable(getattr(keras.activations, name))
    and not name.startswith("_")
)
PARTIALS = [
    ("gelu", {"approximate": True}),
    ("gelu", {"approximate": False}),
    ("leaky_relu", {"negative_slope": 0.05}),
    ("elu", {"alpha": 0.7}),
    ("celu", {"alpha": 0.7}),
    ("relu", {"negative_slope": 0.3, "threshold": 1.0}),
    ("relu", {"max_value": 2.0}),
    ("hard_shrink", {"threshold": 1.5}),
    ("soft_shrink", {"threshold": 1.5}),
    ("squareplus", {"b": 9.0}),
    ("threshold", {"threshold": 1.2, "default_value": 0.4}),
]


def points():
    """Many points, none of them within 1e-4 of a kink."""
    x = np.random.default_rng(0).uniform(-8.0, 8.0, size=400)
    x = np.concatenate([x, [-40.0, -15.0, 15.0, 40.0]])
    for kink in (0.0, 0.5, 1.0, 1.2, 1.5, 2.0, 3.0, 6.0):
        assert np.min(np.abs(np.abs(x) - kink)) > 1e-4
    return x.astype("float32")


def differentiated(function):
    """What the backend makes of Keras' own activation."""
    x = points()
    _, (gradient,) = value_and_gradients(
        lambda x: keras.ops.sum(function(x)), x
    )
    return x, gradient


@pytest.mark.parametrize("name", NAMES)
def test_every_keras_activation_has_its_derivative(name):
    x, expected = differentiated(getattr(keras.activations, name))
    for activation in (name, getattr(keras.activations, name)):
        np.testing.assert_allclose(
            numpy(activation_derivative(activation)(x)),
            expected,
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize(("name", "arguments"), PARTIALS, ids=str)
def test_keyword_arguments_reach_the_derivative(name, arguments):
    activation = functools.partial(
        getattr(keras.activations, name), **arguments
    )
    x, expected = differentiated(activation)
    np.testing.assert_allclose(
        numpy(activation_derivative(activation)(x)),
        expected,
        rtol=1e-5,
        atol=1e-5,
    )


def test_no_activation_is_linear():
    x = points()
    np.testing.assert_array_equal(numpy(activation_derivative(None)(x)), 1.0)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_equals_float64_finite_differences(approximate):
    def gelu(x):
        if approximate:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
            return 0.5 * x * (1.0 + np.tanh(inner))
        return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2)))

    x = points().astype("float64")
    activation = functools.partial(
        keras.activations.gelu, approximate=approximate
    )
    np.testing.assert_allclose(
        numpy(activation_derivative(activation)(x.astype("float32"))),
        (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6,
        rtol=1e-5,
        atol=1e-5,
    )


def test_any_other_callable_is_differentiated_by_a_stencil():
    x = np.linspace(-3.0, 3.0, 50, dtype="float32")
    for function, expected in (
        (lambda x: keras.ops.sin(2.0 * x), 2.0 * np.cos(2.0 * x)),
        (lambda x: x**3, 3.0 * x**2),
    ):
        np.testing.assert_allclose(
            numpy(activation_derivative(function)(x)),
            expected,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("name", ["elu", "gelu", "hard_silu", "relu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_derivative_has_the_dtype_of_its_argument(name, dtype):
    x = keras.ops.cast(np.array([-2.0, 0.3, 5.0]), dtype)
    derivative = activation_derivative(name)(x)
    assert keras.backend.standardize_dtype(derivative.dtype) == dtype
    exact = activation_derivative(name)(keras.ops.cast(x, "float32"))
    np.testing.assert_allclose(
        numpy(keras.ops.cast(derivative, "float32")), numpy(exact), atol=2e-2
    )


@pytest.mark.parametrize("name", NOT_ELEMENTWISE)
def test_activations_that_mix_channels_raise(name):
    with pytest.raises(ValueError, match=f"Received: activation={name}"):
        activation_derivative(name)
    partial = functools.partial(getattr(keras.activations, name), axis=-1)
    with pytest.raises(ValueError, match="each channel alone"):
        activation_derivative(partial)
