"""Outputs and gradients of functions and layers, compiled once on JAX."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import flat
from tests.layers.layer_checks import weighted_sum

ops = keras.ops
Run = tuple[list[np.ndarray], dict[str, np.ndarray]]


class Program:
    """Calls a function, and differentiates a weighted sum of its outputs.

    Args:
        function: A function of named tensors.
        leaves: Names of the arguments that it is differentiated by.
        layer: A built layer whose weights it reads: they are leaves, too.
        dtypes: Dtypes that leaves are cast to before the call, float32 where
            not named.
        scale: Of the sum, as a loss is scaled where gradients are float16.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leaves: tuple[str, ...],
        layer: keras.layers.Layer | None = None,
        dtypes: dict[str, str] | None = None,
        scale: float = 1.0,
    ) -> None:
        self.function = function
        self.leaves = leaves
        self.variables = [] if layer is None else layer.weights
        self.dtypes = dtypes or {}
        self.scale = scale
        self.names = [*leaves, *(v.path for v in self.variables)]
        if keras.backend.backend() == "jax":
            import jax

            self._jax = jax.jit(self._jax)

    def __call__(self, **inputs: Any) -> Run:
        """Returns the outputs, and the gradient by each leaf, as float64."""
        values = [ops.convert_to_tensor(inputs.pop(x)) for x in self.leaves]
        values += [ops.convert_to_tensor(v.value) for v in self.variables]
        run = getattr(self, f"_{keras.backend.backend()}")
        outputs, gradients = run(values, inputs)
        return arrays(outputs), dict(
            zip(self.names, arrays(list(gradients)), strict=True)
        )

    def _total(self, values: list[Any], others: Any) -> tuple[Any, list[Any]]:
        leaves = {
            name: ops.cast(value, self.dtypes.get(name, "float32"))
            for name, value in zip(self.leaves, values, strict=False)
        }
        mapping = zip(self.variables, values[len(leaves) :], strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            outputs = flat(self.function(**leaves, **others))
        total = sum(weighted_sum(ops.cast(x, "float32")) for x in outputs)
        # torch refuses a result that depends on no leaf at all.
        return self.scale * total + 0.0 * ops.sum(values[0]), outputs

    def _jax(self, values: list[Any], others: Any) -> Any:
        import jax

        differentiate = jax.value_and_grad(self._total, has_aux=True)
        (_, outputs), gradients = differentiate(values, others)
        return outputs, gradients

    def _tensorflow(self, values: list[Any], others: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            total, outputs = self._total(values, others)
        return outputs, tape.gradient(
            total, values, unconnected_gradients="zero"
        )

    def _torch(self, values: list[Any], others: Any) -> Any:
        import torch

        values = [v.detach().requires_grad_() for v in values]
        total, outputs = self._total(values, others)
        return outputs, torch.autograd.grad(
            total, values, allow_unused=True, materialize_grads=True
        )


def assert_finite(run: Run) -> None:
    """Asserts that neither an output nor a gradient is infinite or NaN."""
    outputs, gradients = run
    for index, output in enumerate(outputs):
        assert np.all(np.isfinite(output)), f"output {index}: {output}"
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), f"gradient by {name}: {gradient}"


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Asserts that arrays agree, relative to the largest entry of each."""
    for x, y in zip(actual, expected, strict=True):
        scale = 1.0 + np.max(np.abs(y), initial=0.0)
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)
