"""Gradients of the library against finite differences of the reference."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tests.gradients import value_and_gradients

# Keras keeps float64 throughout on TensorFlow alone.
DTYPE, TOLERANCE = (
    ("float64", 1e-6)
    if keras.backend.backend() == "tensorflow"
    else ("float32", 1e-3)
)


def assert_gradients_match(
    function: Callable[..., Any],
    reference: Callable[..., float],
    *arrays: np.ndarray,
    num_directions: int = 2,
    step: float = 1e-5,
    seed: int = 0,
) -> None:
    """Compares directional derivatives with those of the float64 reference.

    Args:
        function: Scalar function of tensors, on the backend in use.
        reference: The same function of float64 arrays, in NumPy.
        *arrays: Where to differentiate.
        num_directions: Random directions for each array.
        step: Of the central differences.
        seed: Of the directions.
    """
    rng = np.random.default_rng(seed)
    # Both sides differentiate at the same, float32, point.
    arrays = tuple(np.asarray(array, "float32") for array in arrays)
    value, gradients = value_and_gradients(
        function, *(array.astype(DTYPE) for array in arrays)
    )
    points = [array.astype("float64") for array in arrays]
    np.testing.assert_allclose(value, reference(*points), rtol=TOLERANCE)
    for index, gradient in enumerate(gradients):
        for _ in range(num_directions):
            direction = rng.normal(size=points[index].shape)
            sides = []
            for sign in (1.0, -1.0):
                moved = list(points)
                moved[index] = moved[index] + sign * step * direction
                sides.append(reference(*moved))
            expected = (sides[0] - sides[1]) / (2 * step)
            scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
            actual = np.sum(gradient * direction)
            assert abs(actual - expected) <= TOLERANCE * (scale + 1e-2), (
                f"argument {index}: {actual} instead of {expected}"
            )
