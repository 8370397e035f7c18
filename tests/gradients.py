"""Values and gradients of a scalar function on the backend in use."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

ValueAndGradients = Callable[..., tuple[float, list[np.ndarray]]]


def gradient_function(function: Callable[..., Any]) -> ValueAndGradients:
    """Returns a function of arrays, compiled on TensorFlow and JAX.

    An array that the function does not depend on has a gradient of zeros.
    """
    return {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}[
        keras.backend.backend()
    ](function)


def value_and_gradients(
    function: Callable[..., Any], *arrays: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    """Returns the value and the gradients of `function(*arrays)`."""
    return gradient_function(function)(*arrays)


def _jax(function: Callable[..., Any]) -> ValueAndGradients:
    import jax

    @jax.jit
    def compiled(*arrays: Any) -> Any:
        positions = tuple(range(len(arrays)))
        return jax.value_and_grad(function, argnums=positions)(*arrays)

    def call(*arrays: np.ndarray) -> tuple[float, list[np.ndarray]]:
        value, gradients = compiled(*arrays)
        return float(value), [np.asarray(g) for g in gradients]

    return call


def _tensorflow(function: Callable[..., Any]) -> ValueAndGradients:
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def compiled(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        gradients = tape.gradient(
            value,
            tensors,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return value, [tf.convert_to_tensor(g) for g in gradients]

    def call(*arrays: np.ndarray) -> tuple[float, list[np.ndarray]]:
        value, gradients = compiled(*map(tf.convert_to_tensor, arrays))
        return float(value), [g.numpy() for g in gradients]

    return call


def _torch(function: Callable[..., Any]) -> ValueAndGradients:
    import torch

    def call(*arrays: np.ndarray) -> tuple[float, list[np.ndarray]]:
        tensors = [
            keras.ops.convert_to_tensor(array).requires_grad_()
            for array in arrays
        ]
        value = function(*tensors)
        gradients = torch.autograd.grad(
            value, tensors, allow_unused=True, materialize_grads=True
        )
        return value.item(), [g.detach().cpu().numpy() for g in gradients]

    return call
