"""Derivatives of the Keras activations, in closed form."""

import functools
import math
from collections.abc import Callable

import keras
from keras import ops

from keras_bft.typing import Tensor

Activation = Callable[[Tensor], Tensor]

_STEP = 1e-2
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772
_NOT_ELEMENTWISE = ("softmax", "log_softmax", "sparsemax", "glu")


def _indicator(condition: Tensor, like: Tensor) -> Tensor:
    return ops.cast(condition, like.dtype)


def _gelu(x: Tensor, approximate: bool = False) -> Tensor:
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        slope = math.sqrt(2 / math.pi) * (1.0 + 3 * 0.044715 * x**2)
        t = ops.tanh(inner)
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t**2) * slope
    if keras.backend.backend() == "jax":
        # TensorFlow 2.21 cannot run the `erf` of a SavedModel that JAX wrote.
        cumulative = 0.5 * ops.erfc(-x * math.sqrt(0.5))
    else:
        cumulative = 0.5 * (1.0 + ops.erf(x / math.sqrt(2)))
    density = ops.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return cumulative + x * density


def _relu(
    x: Tensor,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Tensor:
    slope = ops.where(x > threshold, 1.0, negative_slope)
    if max_value is None:
        return slope
    return ops.where(x < max_value, slope, 0.0)


def _leaky_relu(x: Tensor, negative_slope: float = 0.2) -> Tensor:
    return _relu(x, negative_slope)


def _elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.where(x > 0, 1.0, alpha * ops.exp(ops.minimum(x, 0.0)))


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return ops.where(x > 0, 1.0, ops.exp(ops.minimum(x, 0.0) / alpha))


def _silu(x: Tensor) -> Tensor:
    s = ops.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _mish(x: Tensor) -> Tensor:
    t = ops.tanh(ops.softplus(x))
    return t + x * ops.sigmoid(x) * (1.0 - t**2)


def _hard_silu(x: Tensor) -> Tensor:
    ramp = ops.where(ops.abs(x) < 3, (2.0 * x + 3.0) / 6.0, 0.0)
    return ops.where(x >= 3, 1.0, ramp)


def _shrink(x: Tensor, threshold: float = 0.5) -> Tensor:
    return _indicator(ops.abs(x) > threshold, x)


def _squareplus(x: Tensor, b: float = 4.0) -> Tensor:
    return 0.5 * (1.0 + x / ops.sqrt(x**2 + b))


def _threshold(x: Tensor, threshold: float, default_value: float) -> Tensor:
    return _indicator(x > threshold, x)


# Each takes the keyword arguments of its activation.
_DERIVATIVES: dict[str, Callable[..., Tensor]] = {
    "linear": ops.ones_like,
    "relu": _relu,
    "relu6": lambda x: _relu(x, max_value=6.0),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "celu": _celu,
    "selu": lambda x: _SELU_SCALE * _elu(x, _SELU_ALPHA),
    "gelu": _gelu,
    "silu": _silu,
    "mish": _mish,
    "sigmoid": lambda x: ops.sigmoid(x) * ops.sigmoid(-x),
    "log_sigmoid": lambda x: ops.sigmoid(-x),
    "tanh": lambda x: 1.0 - ops.tanh(x) ** 2,
    "tanh_shrink": lambda x: ops.tanh(x) ** 2,
    "softplus": ops.sigmoid,
    "softsign": lambda x: 1.0 / (1.0 + ops.abs(x)) ** 2,
    "squareplus": _squareplus,
    "exponential": ops.exp,
    "hard_sigmoid": lambda x: _indicator(ops.abs(x) < 3, x) / 6.0,
    "hard_silu": _hard_silu,
    "hard_tanh": lambda x: _indicator(ops.abs(x) < 1, x),
    "hard_shrink": _shrink,
    "soft_shrink": _shrink,
    "sparse_plus": lambda x: ops.clip((x + 1.0) / 2.0, 0.0, 1.0),
    "sparse_sigmoid": lambda x: 0.5 * _indicator(ops.abs(x) < 1, x),
    "threshold": _threshold,
}


def activation_derivative(activation: str | Activation) -> Activation:
    """Derivative of an elementwise activation.

    Every elementwise activation of `keras.activations` has its closed form,
    and so has its `functools.partial` with keyword arguments. Any other
    callable is differentiated by a five-point stencil of step 0.01, right to
    about 1e-5 where the function is smooth.

    Args:
        activation: Name or callable, as `keras.activations.get` takes it.

    Returns:
        A function from the pre-activation to the derivative there, in the
        dtype of the pre-activation.

    Raises:
        ValueError: If the activation mixes channels (softmax, glu, ...).

    Example:

    >>> derivative = activation_derivative("relu")
    >>> keras.ops.convert_to_numpy(derivative(np.array([-1.0, 2.0]))).tolist()
    [0.0, 1.0]
    """
    function = keras.activations.get(activation)
    arguments = {}
    inner = function
    if isinstance(function, functools.partial) and not function.args:
        inner, arguments = function.func, function.keywords
    name = getattr(inner, "__name__", "")
    if getattr(keras.activations, name, None) is inner:
        if name in _NOT_ELEMENTWISE:
            raise ValueError(
                "`activation` must act on each channel alone, since only then "
                "is its Jacobian diagonal. "
                f"Received: activation={activation}"
            )
        if name in _DERIVATIVES:
            return _on_tensors(
                functools.partial(_DERIVATIVES[name], **arguments)
            )
    return _on_tensors(functools.partial(_stencil, function))


def _on_tensors(derivative: Activation) -> Activation:
    def on_tensor(x: Tensor) -> Tensor:
        x = ops.convert_to_tensor(x)
        return ops.cast(derivative(x), x.dtype)

    return on_tensor


def _stencil(function: Activation, x: Tensor) -> Tensor:
    near = function(x + _STEP) - function(x - _STEP)
    far = function(x + 2 * _STEP) - function(x - 2 * _STEP)
    return (8.0 * near - far) / (12.0 * _STEP)
