import keras
import numpy as np
import pytest

from keras_bft.ops import head_log_precision
from keras_bft.ops import value_log_precision
from tests.gradients import gradient_function
from tests.ops.arrays import SHAPES
from tests.ops.arrays import assert_log_close
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import weighted_sum
from tests.ops.reference_gradients import assert_gradients_match
from tests.reference import bft_reference as reference


def make_inputs(rng, shape, channels=6, heads=2, head_dim=3):
    batch, length, width = shape
    return (
        log_precisions(rng, (batch, length, width)),
        rng.uniform(0.2, 3.0, size=(batch, length)).astype("float32"),
        normals(rng, channels),
        normals(rng, channels, heads, head_dim),
    )


def head_precision(precision, kernel):
    """Inverse of the kernel-weighted mean variance, one head at a time."""
    heads = []
    for head in range(kernel.shape[1]):
        share = np.sum(kernel[:, head] ** 2, axis=-1)
        share = share / share.sum()
        heads.append(1.0 / np.sum(share / precision, axis=-1))
    return np.stack(heads, axis=-1)


@pytest.mark.parametrize("shape", SHAPES)
def test_value_precision_equals_the_reference(shape):
    rng = np.random.default_rng(0)
    inputs = make_inputs(rng, shape, shape[2] + 1, heads=shape[1])
    expected = reference.value_precision(
        np.exp(inputs[0].astype("float64")), *inputs[1:]
    )
    assert_log_close(run(value_log_precision, *inputs), expected)


def test_no_gamma_means_ones():
    inputs = make_inputs(np.random.default_rng(1), (2, 3, 1))
    ones = (*inputs[:2], np.ones(6, "float32"), inputs[3])
    np.testing.assert_array_equal(
        numpy(value_log_precision(*inputs[:2], None, inputs[3])),
        numpy(value_log_precision(*ones)),
    )


@pytest.mark.parametrize("shape", SHAPES[::3])
def test_a_derivative_scales_the_channels_of_each_value(shape):
    rng = np.random.default_rng(9)
    inputs = make_inputs(rng, shape)
    derivative = normals(rng, *shape[:2], 2, 3)
    log_precision, spread, gamma, kernel = (x.astype("float64") for x in inputs)
    # A key at a time, the derivative is a part of its value kernel.
    expected = np.stack(
        [
            [
                reference.value_precision(
                    np.exp(log_precision[b, s])[None, None],
                    spread[b, s][None, None],
                    gamma,
                    kernel * derivative[b, s],
                )[0, 0]
                for s in range(shape[1])
            ]
            for b in range(shape[0])
        ]
    )
    assert_log_close(run(value_log_precision, *inputs, derivative), expected)
    ones = np.ones_like(derivative)
    np.testing.assert_allclose(
        numpy(value_log_precision(*inputs, ones)),
        numpy(value_log_precision(*inputs)),
        atol=1e-6,
    )


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_scaling_the_stream_changes_nothing(factor):
    log_precision, spread, gamma, kernel = make_inputs(
        np.random.default_rng(2), (2, 3, 6)
    )
    scaled = log_precision - np.float32(2 * np.log(factor))
    np.testing.assert_allclose(
        numpy(value_log_precision(scaled, factor * spread, gamma, kernel)),
        numpy(value_log_precision(log_precision, spread, gamma, kernel)),
        atol=1e-5,
    )


@pytest.mark.parametrize("width", [1, 6])
def test_inputs_are_left_as_they_were(width):
    inputs = make_inputs(np.random.default_rng(3), (2, 3, width))
    tensors = [keras.ops.convert_to_tensor(x) for x in inputs]
    value_log_precision(*tensors)
    head_log_precision(tensors[0], tensors[3])
    for tensor, array in zip(tensors, inputs, strict=True):
        np.testing.assert_array_equal(numpy(tensor), array)


def test_gradients_equal_finite_differences():
    rng = np.random.default_rng(4)
    inputs = make_inputs(rng, (2, 3, 6))
    probe = normals(rng, 2, 3, 2)
    assert_gradients_match(
        lambda *arrays: weighted_sum(value_log_precision(*arrays), probe),
        lambda log_precision, *rest: np.sum(
            np.log(reference.value_precision(np.exp(log_precision), *rest))
            * probe
        ),
        *inputs,
    )
    assert_gradients_match(
        lambda *arrays: weighted_sum(head_log_precision(*arrays), probe),
        lambda log_precision, kernel: np.sum(
            np.log(head_precision(np.exp(log_precision), kernel)) * probe
        ),
        inputs[0],
        inputs[3],
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_head_precision_is_the_kernel_weighted_mean(shape):
    rng = np.random.default_rng(5)
    log_precision = log_precisions(rng, shape)
    kernel = normals(rng, shape[2], shape[1], 3)
    expected = head_precision(np.exp(log_precision.astype("float64")), kernel)
    assert_log_close(run(head_log_precision, log_precision, kernel), expected)


def test_one_precision_for_all_channels_is_that_of_each_head():
    log_precision = log_precisions(np.random.default_rng(6), (2, 3, 1))
    kernel = normals(np.random.default_rng(7), 6, 4, 2)
    np.testing.assert_array_equal(
        numpy(head_log_precision(log_precision, kernel)),
        np.repeat(log_precision, 4, axis=-1),
    )


def test_extremes_and_dead_heads_stay_finite():
    rng = np.random.default_rng(8)
    _, spread, gamma, kernel = make_inputs(rng, (2, 3, 6))
    dead = kernel.copy()
    dead[:, 0] = 0.0

    def function(log_precision, spread, gamma, kernel):
        return keras.ops.mean(
            value_log_precision(log_precision, spread, gamma, kernel)
        ) + keras.ops.mean(head_log_precision(log_precision, kernel))

    differentiate = gradient_function(function)
    for levels in ((-1e4, 1e4), np.log([1e-12, 1e12])):
        log_precision = rng.choice(levels, (2, 3, 6)).astype("float32")
        for matrix in (kernel, dead):
            value, gradients = differentiate(
                log_precision, spread, gamma, matrix
            )
            assert np.isfinite(value)
            assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_one_key_says_nothing_of_the_precision_of_another():
    # The variances of one key are e^200 times those of the other.
    rng = np.random.default_rng(9)
    log_precision = log_precisions(rng, (1, 2, 4))
    kernel = normals(rng, 4, 2, 3)
    alone = numpy(head_log_precision(log_precision[:, :1], kernel))
    log_precision[:, 1] -= 200.0
    both = numpy(head_log_precision(log_precision, kernel))
    np.testing.assert_allclose(both[:, :1], alone, rtol=1e-5)


def test_a_head_that_reads_no_channel_has_the_mean_variance():
    kernel = np.zeros((3, 2, 4), "float32")
    log_precision = -np.log([[[1.0, 2.0, 6.0]]]).astype("float32")
    result = numpy(head_log_precision(log_precision, kernel))
    np.testing.assert_allclose(result[0, 0], -np.log([3.0, 3.0]), rtol=1e-5)
