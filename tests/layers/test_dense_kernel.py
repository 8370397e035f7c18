"""The kernel that the filter reads, whatever was done to the projection."""

import keras
import numpy as np
import pytest

from keras_bft.layers._filter_layer import apply_dense
from keras_bft.layers._filter_layer import dense_kernel
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy


def dense(lora=False, quantize=None):
    layer = keras.layers.Dense(6, use_bias=False)
    layer.build((None, 5))
    if quantize:
        layer.quantize(quantize)
    if lora:
        layer.enable_lora(2, lora_alpha=3)
        rng = np.random.default_rng(0)
        layer.lora_kernel_a.assign(normal(rng, 5, 2))
        layer.lora_kernel_b.assign(normal(rng, 2, 6))
    return layer


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("lora", [False, True])
def test_is_what_the_layer_multiplies_by(lora, quantize):
    layer = dense(lora, quantize)
    effective = numpy(layer(np.eye(5, dtype="float32")))
    atol = 1e-6 if quantize is None else 1e-5
    np.testing.assert_allclose(numpy(dense_kernel(layer)), effective, atol=atol)


def test_other_quantizations_are_refused():
    with pytest.raises(NotImplementedError, match="quantized to 'int4'"):
        dense_kernel(dense(quantize="int4"))


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("lora", [False, True])
def test_applying_it_is_calling_the_layer(lora, quantize):
    layer = dense(lora, quantize)
    x = normal(np.random.default_rng(1), 2, 3, 5)
    np.testing.assert_allclose(
        numpy(apply_dense(layer, keras.ops.convert_to_tensor(x))),
        numpy(layer(x)),
        atol=1e-6,
    )


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "float64"])
def test_applying_it_adds_the_bias_in_the_dtype_of_the_input(policy):
    if policy == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 unless it is told so")
    layer = keras.layers.Dense(6, bias_initializer="ones", dtype=policy)
    layer.build((None, 5))
    x = keras.ops.cast(np.ones((1, 2, 5)), layer.compute_dtype)
    applied, called = apply_dense(layer, x), layer(x)
    assert applied.dtype == called.dtype
    np.testing.assert_allclose(numpy(applied), numpy(called), atol=1e-2)
