"""Rotary embedding against complex numbers."""

import keras
import numpy as np
import pytest

from keras_bft.ops.rotary import rotate
from keras_bft.ops.rotary import rotation
from tests.ops.arrays import normals
from tests.ops.arrays import numpy

POSITIONS = np.array([[0, 1, 5], [7, 2, 1000]], "int32")
FREQUENCIES = np.array([1.0, 0.1, 0.01, 3.0], "float32")


def make_rotation():
    return rotation(
        keras.ops.convert_to_tensor(POSITIONS),
        keras.ops.convert_to_tensor(FREQUENCIES),
    )


def angles():
    return POSITIONS[..., None] * FREQUENCIES.astype("float64")


def test_rotation_holds_cosine_and_sine():
    result = make_rotation()
    assert keras.backend.standardize_dtype(result.dtype) == "float32"
    expected = np.stack([np.cos(angles()), np.sin(angles())], axis=-2)
    np.testing.assert_allclose(numpy(result), expected, atol=2e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_channels_turn_as_complex_numbers(dtype):
    x = normals(np.random.default_rng(0), 2, 3, 2, 8).astype(dtype)
    turn = np.exp(1j * angles())[:, :, None]
    turned = (x[..., :4] + 1j * x[..., 4:].astype("float64")) * turn
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    result = rotate(keras.ops.convert_to_tensor(x), make_rotation())
    assert keras.backend.standardize_dtype(result.dtype) == dtype
    tolerance = 1e-3 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(numpy(result), expected, atol=tolerance)


def test_half_queries_turn_in_float32():
    # 2048 and 1 cancel in float16: its steps there are of 2.
    x = np.array([2048.0, 2047.0], "float16").reshape(1, 1, 1, 2)
    eighth = np.full((1, 1, 2, 1), np.sqrt(0.5), "float32")
    result = rotate(*map(keras.ops.convert_to_tensor, (x, eighth)))
    expected = np.sqrt(0.5) * np.array([1.0, 4095.0])
    np.testing.assert_allclose(numpy(result).ravel(), expected, rtol=1e-3)
