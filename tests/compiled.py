"""Functions compiled where calling them op by op is slow."""

from collections.abc import Callable
from typing import Any

import keras


def compiled(
    function: Callable[..., Any], *layers: keras.layers.Layer
) -> Callable[..., Any]:
    """The function, compiled on JAX, which else compiles each op of it.

    It pays for shapes that no other test has.

    Args:
        function: A function of arrays that changes no variable.
        *layers: Built layers whose weights it reads. These are inputs of the
            program, so that equal layers have the same, compiled once.
    """
    if keras.backend.backend() != "jax":
        return function
    import jax

    variables = [v for layer in layers for v in layer.variables]

    @jax.jit
    def pure(values: list[Any], args: Any, options: Any) -> Any:
        mapping = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(*args, **options)

    def call(*args: Any, **options: Any) -> Any:
        return pure([v.value for v in variables], args, options)

    return call
