import functools

import keras
import numpy as np
import pytest

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import KrigingObservation
from keras_bft.ops import kriging_observation
from keras_bft.ops import kriging_weights
from keras_bft.ops import log_mean_precision
from tests.gradients import gradient_function
from tests.ops.arrays import assert_log_close
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import run_named
from tests.ops.arrays import weighted_sum
from tests.ops.kriging_cases import CASES
from tests.ops.kriging_cases import expected_observation
from tests.ops.kriging_cases import make_inputs
from tests.ops.kriging_cases import simple_inputs
from tests.ops.reference_gradients import assert_gradients_match

ARRAYS = ("query", "key", "value", "key_log_precision", "value_log_precision")


def observe(inputs):
    """What `kriging_observation` returns, as NumPy."""
    return observe_all(inputs)[0]


def observations(**inputs):
    log_precision = inputs["key_log_precision"]
    if log_precision is not None:
        log_precision = log_mean_precision(log_precision)
    options = [inputs[name] for name in ("mask", "scale", "strength")]
    return (
        kriging_observation(**inputs),
        kriging_observation(**inputs, variance="head"),
        kriging_weights(
            inputs["query"], inputs["key"], log_precision, *options
        ),
    )


def observe_all(inputs):
    """Both variances and the weights, from one compilation, as NumPy."""
    channel, head, weights = run_named(observations, inputs)
    return (
        KrigingObservation(*(numpy(x) for x in channel)),
        KrigingObservation(*(numpy(x) for x in head)),
        numpy(weights),
    )


@functools.cache
def observe_case(case):
    inputs = make_inputs(case)
    return expected_observation(inputs), *observe_all(inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_observation_equals_the_reference(case):
    expected, observed, _, _ = observe_case(case)
    np.testing.assert_allclose(
        observed.estimate, expected["estimate"], rtol=5e-7, atol=1e-5
    )
    assert np.all(observed.residual_variance >= 0.0)
    np.testing.assert_allclose(
        observed.residual_variance,
        expected["residual_variance"],
        rtol=1e-3,
        atol=1e-6,
    )
    np.testing.assert_allclose(
        observed.effective_sample_size[..., 0],
        expected["effective_sample_size"],
        rtol=1e-4,
    )
    prior = expected["prior_precision"]
    seen = prior > 0
    log_prior = observed.log_prior_precision[..., 0]
    assert_log_close(log_prior[seen], prior[seen])
    np.testing.assert_array_equal(log_prior[~seen], NO_OBSERVATION)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_head_variance_equals_the_reference(case):
    expected, channel, observed, _ = observe_case(case)
    residual = expected["residual_variance"]
    assert np.all(observed.residual_variance >= 0.0)
    np.testing.assert_allclose(
        observed.residual_variance,
        residual.mean(axis=-1, keepdims=True),
        rtol=1e-3,
        atol=1e-6,
    )
    for index in (0, 2, 3):
        np.testing.assert_allclose(
            observed[index], channel[index], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_equal_the_reference(case):
    expected, _, _, weights = observe_case(case)
    np.testing.assert_allclose(
        weights, expected["weights"], rtol=1e-4, atol=1e-7
    )
    assert weights.dtype == "float32"


def test_weights_take_a_precision_per_head():
    inputs = simple_inputs()
    per_head = inputs["value_log_precision"]
    weights = numpy(
        kriging_weights(
            inputs["query"], inputs["key"], per_head, inputs["mask"]
        )
    )
    for head in range(4):
        shared = {**inputs, "key_log_precision": per_head[..., head // 2, None]}
        expected = expected_observation(shared)["weights"][:, head]
        np.testing.assert_allclose(weights[:, head], expected, rtol=1e-4)


def test_uniform_precision_gives_softmax_weights():
    inputs = simple_inputs("left")
    expected = expected_observation({**inputs, "strength": 0.0})["weights"]
    uniform = np.full((2, 5), 3.0, "float32")
    for log_precision in (uniform, None):
        for strength in (0.0, 0.3, 1.0, 4.0):
            weights = kriging_weights(
                inputs["query"],
                inputs["key"],
                log_precision,
                inputs["mask"],
                strength=strength,
            )
            np.testing.assert_allclose(numpy(weights), expected, atol=1e-6)


@pytest.mark.parametrize("is_tensor", [False, True])
def test_strength_zero_gives_softmax_attention(is_tensor):
    inputs = simple_inputs("blind")
    strength = keras.ops.zeros(()) if is_tensor else 0.0
    plain = {**inputs, "key_log_precision": None, "strength": strength}
    observed, expected = (
        observe(x) for x in ({**inputs, "strength": strength}, plain)
    )
    for actual, wanted in zip(observed, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)
    inputs["strength"] = 1.0
    assert np.max(np.abs(observe(inputs)[0] - expected[0])) > 0.1


def test_a_tensor_strength_equals_the_number():
    inputs = simple_inputs(strength=0.3)
    tensor = {**inputs, "strength": np.float32(0.3) * np.ones((), "float32")}
    for actual, wanted in zip(observe(tensor), observe(inputs), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_a_vague_key_gets_no_weight_and_a_sharp_one_all():
    inputs = simple_inputs("none")
    for level, weight in ((np.log(1e-12), 0.0), (np.log(1e12), 1.0)):
        log_precision = np.zeros((2, 5), "float32")
        log_precision[:, 2] = level
        weights = numpy(
            kriging_weights(inputs["query"], inputs["key"], log_precision)
        )
        np.testing.assert_allclose(weights[..., 2], weight, atol=1e-8)
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)


def test_no_precision_means_precision_one():
    inputs = {**simple_inputs(), "value_log_precision": None}
    ones = {**inputs, "key_log_precision": np.zeros((2, 5, 1), "float32")}
    none = {**inputs, "key_log_precision": None}
    for actual, wanted in zip(observe(none), observe(ones), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)


def test_a_key_of_precision_zero_is_not_seen():
    inputs = simple_inputs("causal", token=True)
    inputs["key_log_precision"][:, 1] = -np.inf
    masked = simple_inputs("causal", token=True)
    masked["mask"] = masked["mask"] & (np.arange(5) != 1)
    for actual, wanted in zip(observe(inputs), observe(masked), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)

    def function(query, key, log_precision, strength):
        weights = kriging_weights(
            query, key, log_precision, inputs["mask"], strength=strength
        )
        return keras.ops.sum(weights**2)

    differentiate = gradient_function(function)
    for strength in (0.0, 1.0):
        value, gradients = differentiate(
            inputs["query"],
            inputs["key"],
            inputs["key_log_precision"][..., 0],
            np.float32(strength),
        )
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_later_keys_change_nothing_earlier():
    inputs = simple_inputs("causal")
    changed = simple_inputs("causal")
    for name in ARRAYS:
        changed[name][:, 3:] += 2.0
    for actual, wanted in zip(observe(changed), observe(inputs), strict=True):
        np.testing.assert_allclose(actual[:, :3], wanted[:, :3], atol=1e-5)
        assert np.max(np.abs(actual[:, 3:] - wanted[:, 3:])) > 0.1


def test_padding_on_either_side_changes_nothing():
    inputs = simple_inputs("causal", offset=50.0)
    expected = observe(inputs)
    for before, after in ((3, 0), (0, 3), (1, 2)):
        padded = dict(inputs)
        for name in ARRAYS:
            ends = [(0, 0)] * inputs[name].ndim
            ends[1] = (before, after)
            padded[name] = np.pad(inputs[name], ends, constant_values=7.0)
        real = np.pad(np.ones(5, bool), (before, after))
        causal = np.tri(8, 8, dtype=bool) & real & real[:, None]
        padded["mask"] = np.repeat(causal[None], 2, axis=0)
        observed = observe(padded)
        for actual, wanted in zip(observed, expected, strict=True):
            np.testing.assert_allclose(
                actual[:, real], wanted, rtol=1e-5, atol=1e-5
            )
        np.testing.assert_array_equal(observed.estimate[:, ~real], 0.0)


def reference_scalar(inputs, probes):
    def scalar(*arrays):
        *arrays, strength = arrays
        named = dict(zip(ARRAYS, arrays, strict=True))
        expected = expected_observation(
            {**inputs, **named, "strength": float(strength)}
        )
        prior = expected["prior_precision"][..., None]
        log_prior = np.where(
            prior > 0, np.log(np.where(prior > 0, prior, 1.0)), NO_OBSERVATION
        )
        return sum(
            np.sum(x * probe)
            for x, probe in zip(
                (
                    expected["estimate"],
                    expected["residual_variance"],
                    expected["effective_sample_size"][..., None],
                    log_prior,
                ),
                probes,
                strict=True,
            )
        )

    return scalar


@pytest.mark.parametrize(
    ("mask", "strength"),
    [("none", 0.0), ("causal", 0.3), ("causal", 1.0), ("blind", 1.0)],
)
def test_gradients_equal_finite_differences(mask, strength):
    inputs = simple_inputs(mask)
    rng = np.random.default_rng(3)
    probes = [normals(rng, 2, 5, 4, width) for width in (3, 3, 1, 1)]
    if mask == "blind":
        # The constant of the blind queries would hide the rest of the value.
        probes[3][expected_observation(inputs)["prior_precision"] == 0] = 0.0

    def function(*arrays):
        *arrays, strength = arrays
        named = dict(zip(ARRAYS, arrays, strict=True))
        observed = kriging_observation(
            **named, mask=inputs["mask"], strength=strength
        )
        return sum(
            weighted_sum(x, probe)
            for x, probe in zip(observed, probes, strict=True)
        )

    assert_gradients_match(
        function,
        reference_scalar(inputs, probes),
        *(inputs[name] for name in ARRAYS),
        np.float32(strength),
    )


@pytest.mark.parametrize("mask", ["causal", "blind", "nobody"])
def test_extreme_precisions_stay_finite(mask):
    inputs = simple_inputs(mask)
    rng = np.random.default_rng(4)

    def function(*arrays):
        named = dict(zip(ARRAYS, arrays, strict=True))
        observed = kriging_observation(**named, mask=inputs["mask"])
        return sum(keras.ops.mean(x) for x in observed)

    differentiate = gradient_function(function)
    for low, high in ((-1e4, 1e4), np.log([1e-12, 1e12])):
        for name in ("key_log_precision", "value_log_precision"):
            levels = rng.choice([low, 0.0, high], inputs[name].shape)
            inputs[name] = levels.astype("float32")
        value, gradients = differentiate(*(inputs[name] for name in ARRAYS))
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    # The reference does without logarithms up to 1e12.
    expected = expected_observation(inputs)
    observed = observe(inputs)
    np.testing.assert_allclose(
        observed.estimate, expected["estimate"], atol=1e-5
    )
    seen = expected["prior_precision"] > 0
    assert_log_close(
        observed.log_prior_precision[..., 0][seen],
        expected["prior_precision"][seen],
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_inputs_give_float32_statistics(dtype):
    inputs = simple_inputs("causal")
    names = ("query", "key", "value")

    def function(*arrays):
        half = [keras.ops.cast(array, dtype) for array in arrays]
        return tuple(
            kriging_observation(
                **{**inputs, **dict(zip(names, half, strict=True))}
            )
        )

    observed = run(function, *(inputs[name] for name in names))
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in observed]
    assert dtypes == [dtype, "float32", "float32", "float32"]
    tolerance = 2e-2 if dtype == "bfloat16" else 2e-3
    for actual, wanted in zip(observed, observe(inputs), strict=True):
        np.testing.assert_allclose(
            numpy(keras.ops.cast(actual, "float32")),
            wanted,
            rtol=tolerance,
            atol=tolerance,
        )


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="JAX is compiled in most tests, torch runs eagerly",
)
def test_runs_compiled_for_any_batch_and_length():
    import tensorflow as tf

    inputs = simple_inputs("causal")
    names = (*ARRAYS, "mask")
    compiled = tf.function(
        lambda *arrays: tuple(
            kriging_observation(**dict(zip(names, arrays, strict=True)))
        ),
        input_signature=[
            tf.TensorSpec(
                (None, None, None)
                if name == "mask"
                else (None, None, *inputs[name].shape[2:]),
                tf.as_dtype(inputs[name].dtype),
            )
            for name in names
        ],
    )
    for actual, wanted in zip(
        compiled(*(inputs[name] for name in names)),
        observe(inputs),
        strict=True,
    ):
        np.testing.assert_allclose(numpy(actual), wanted, rtol=1e-5, atol=1e-6)


def test_bad_arguments_raise():
    inputs = simple_inputs()
    with pytest.raises(ValueError, match="multiple of the number of key heads"):
        kriging_weights(inputs["query"][:, :, :3], inputs["key"])
    with pytest.raises(ValueError, match=r"`mask` must.*Received: mask.shape"):
        kriging_weights(
            inputs["query"], inputs["key"], mask=np.ones((2, 5), bool)
        )
    with pytest.raises(ValueError, match="Received: variance='token'"):
        kriging_observation(**inputs, variance="token")
    inputs["value"] = np.zeros((2, 5, 3, 3), "float32")
    with pytest.raises(ValueError, match="same number of heads. Received"):
        kriging_observation(**inputs)
