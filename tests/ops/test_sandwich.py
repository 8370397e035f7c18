import keras
import numpy as np
import pytest

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import SandwichObservation
from keras_bft.ops import sandwich_observation
from keras_bft.ops import sandwich_weights
from keras_bft.ops.sandwich import known_keys
from tests.gradients import gradient_function
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import run
from tests.ops.arrays import run_named
from tests.ops.arrays import weighted_sum
from tests.ops.kriging_cases import CASES
from tests.ops.kriging_cases import Case
from tests.ops.kriging_cases import make_mask
from tests.ops.reference_gradients import assert_gradients_match
from tests.reference import bft_reference as reference

# The cases of the kriging tests, with as many heads of keys as of queries.
CASES = [
    Case((*c.sizes[:4], c.sizes[3], c.sizes[5]), *list(vars(c).values())[1:])
    for c in CASES
]
ARRAYS = ("weights", "value", "key_log_precision", "value_log_precision")


def make_inputs(case, seed=0):
    """The arguments of `sandwich_observation` that are not options."""
    rng = np.random.default_rng(seed)
    batch, queries, keys, heads, _, channels = case.sizes
    value = normals(rng, batch, keys, heads, channels) + case.offset
    width = 1 if case.token else 5
    return {
        "weights": normals(rng, batch, heads, queries, keys) / keys,
        "value": value.astype("float32"),
        "key_log_precision": log_precisions(rng, (batch, keys, width)),
        "value_log_precision": (
            log_precisions(rng, (batch, keys, heads))
            if case.own_units
            else None
        ),
        "mask": make_mask(case.mask, rng, batch, queries, keys),
        "strength": case.strength,
    }


def simple_inputs(mask="causal", **options):
    case = Case((2, 4, 5, 2, 2, 3), mask, own_units=True, **options)
    return make_inputs(case, seed=1)


def expected_observation(inputs):
    """What the reference observes, in float64."""
    weights, value = (
        np.asarray(inputs[name], "float64") for name in ("weights", "value")
    )
    batch, _, queries, keys = weights.shape
    visible = np.ones((batch, queries, keys), bool)
    if inputs["mask"] is not None:
        visible = visible & inputs["mask"]
    precision = np.ones((batch, keys, 1))
    if inputs["key_log_precision"] is not None:
        precision = np.exp(
            np.asarray(inputs["key_log_precision"], "float64")
        ).mean(-1, keepdims=True)
    own = np.repeat(precision, weights.shape[1], axis=-1)
    if inputs["value_log_precision"] is not None:
        own = np.exp(np.asarray(inputs["value_log_precision"], "float64"))
    # The reference has no strength; it is the exponent of the precision.
    known = precision > 0
    power = np.where(known, precision, 1.0) ** inputs["strength"] * known
    return reference.sandwich_observation(weights, value, power, visible, own)


def observations(**inputs):
    return (
        sandwich_observation(**inputs),
        sandwich_observation(**inputs, variance="head"),
    )


def observe_all(inputs):
    """Both kinds of variance, from one compilation, as NumPy."""
    return [
        SandwichObservation(*(numpy(x) for x in observed))
        for observed in run_named(observations, inputs)
    ]


def observe(inputs):
    return observe_all(inputs)[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_observation_equals_the_reference(case):
    inputs = make_inputs(case)
    expected = expected_observation(inputs)
    channel, head = observe_all(inputs)
    scale = max(1.0, abs(case.offset))
    rtol = 1e-4 if case.offset == 0 else 1e-3
    for observed in (channel, head):
        np.testing.assert_allclose(
            observed.estimate,
            expected["estimate"],
            rtol=1e-4,
            atol=1e-6 * scale,
        )
    variance = expected["variance"]
    np.testing.assert_allclose(channel.variance, variance, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(
        head.variance,
        variance.mean(-1, keepdims=True),
        rtol=rtol,
        atol=1e-8,
    )
    assert channel.variance.dtype == head.variance.dtype == "float32"


def test_the_variance_ignores_a_common_offset():
    inputs = simple_inputs()
    # Nearly exact values, so that the spread is all that is left.
    inputs["value_log_precision"][:] = 30.0
    inputs["value"] = (inputs["value"] + 1000.0).astype("float32")
    expected = expected_observation(inputs)["variance"]
    np.testing.assert_allclose(
        observe(inputs).variance, expected, rtol=1e-3, atol=1e-12
    )


def test_identical_values_have_the_prior_variance_alone():
    inputs = simple_inputs("none")
    inputs["value"][:] = 1234.5
    inputs["key_log_precision"] = None
    inputs["value_log_precision"][:] = np.log(4.0)
    expected = (inputs["weights"].astype("float64") ** 2).sum(-1) / 5 / 4
    for observed in observe_all(inputs):
        np.testing.assert_allclose(
            observed.variance[..., 0],
            np.swapaxes(expected, 1, 2),
            rtol=1e-5,
        )


@pytest.mark.parametrize("is_tensor", [False, True])
def test_uniform_precision_and_strength_zero_change_nothing(is_tensor):
    inputs = simple_inputs("blind")
    plain = observe({**inputs, "key_log_precision": None})
    uniform = np.full((2, 5, 3), 3.3, "float32")
    for strength, log_precision in (
        (0.0, inputs["key_log_precision"]),
        (0.0, uniform),
        (0.7, uniform),
        (3.0, uniform),
    ):
        observed = observe(
            {
                **inputs,
                "key_log_precision": log_precision,
                "strength": np.float32(strength) if is_tensor else strength,
            }
        )
        for actual, wanted in zip(observed, plain, strict=True):
            np.testing.assert_array_equal(actual, wanted)
    assert np.max(np.abs(observe(inputs).estimate - plain.estimate)) > 0.1


@pytest.mark.parametrize("nothing", [-np.inf, NO_OBSERVATION])
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_a_key_of_precision_zero_is_not_seen(nothing, strength):
    inputs = simple_inputs("none", strength=strength)
    masked = {**inputs, "mask": np.arange(5)[None, None] != 1}
    inputs["key_log_precision"] = inputs["key_log_precision"].copy()
    inputs["key_log_precision"][:, 1] = nothing
    for actual, wanted in zip(observe(inputs), observe(masked), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)


def test_no_observation_is_unknown_in_any_width():
    for width in (1, 3, 6, 7, 12):
        log_precision = np.full((1, 2, width), NO_OBSERVATION, "float32")
        log_precision[:, 1, -1] = -100.0
        known = numpy(known_keys(log_precision))
        np.testing.assert_array_equal(known, [[False, True]])


def test_hidden_keys_may_hold_anything():
    inputs = simple_inputs("causal")
    changed = {name: np.copy(inputs[name]) for name in ARRAYS}
    changed["value"][:, 3:] = 1e5
    changed["key_log_precision"][:, 3:] = 1e4
    changed["value_log_precision"][:, 3:] = -1e4
    early = inputs["mask"][0, :, 3:].any(-1)
    assert 0 < early.sum() < 4
    for actual, wanted in zip(
        observe({**inputs, **changed}), observe(inputs), strict=True
    ):
        np.testing.assert_allclose(
            actual[:, ~early], wanted[:, ~early], rtol=1e-4, atol=1e-6
        )


def test_one_mask_serves_the_batch():
    inputs = simple_inputs("causal")
    inputs["mask"] = inputs["mask"][:1]
    repeated = {**inputs, "mask": np.repeat(inputs["mask"], 2, axis=0)}
    for actual, wanted in zip(observe(inputs), observe(repeated), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6)


@pytest.mark.parametrize("mask", ["blind", "nobody"])
def test_nothing_visible_and_extremes_stay_finite(mask):
    inputs = simple_inputs(mask)
    rng = np.random.default_rng(4)

    def function(*arrays):
        named = dict(zip(ARRAYS, arrays, strict=True))
        observed = sandwich_observation(**named, mask=inputs["mask"])
        return sum(keras.ops.mean(x) for x in observed)

    differentiate = gradient_function(function)
    for levels in ([0.0], [-1e4, 0.0, 1e4], [-np.inf, 0.0]):
        for name in ("key_log_precision", "value_log_precision"):
            if np.all(np.isfinite(levels)) or name.startswith("key"):
                drawn = rng.choice(levels, inputs[name].shape)
                inputs[name] = drawn.astype("float32")
        value, gradients = differentiate(*(inputs[name] for name in ARRAYS))
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
        blind = ~inputs["mask"].any(-1)
        for x in observe(inputs):
            blind = np.broadcast_to(blind, x.shape[:2])
            np.testing.assert_array_equal(x[blind], 0.0)


@pytest.mark.parametrize(
    ("mask", "strength"), [("causal", 0.0), ("causal", 1.0), ("blind", 0.3)]
)
def test_gradients_equal_finite_differences(mask, strength):
    inputs = simple_inputs(mask)
    rng = np.random.default_rng(3)
    probes = [normals(rng, 2, 4, 2, 3) for _ in range(2)]

    def function(*arrays):
        *arrays, strength = arrays
        named = dict(zip(ARRAYS, arrays, strict=True))
        observed = sandwich_observation(
            **named, mask=inputs["mask"], strength=strength
        )
        return sum(map(weighted_sum, observed, probes))

    def scalar(*arrays):
        *arrays, strength = arrays
        named = dict(zip(ARRAYS, arrays, strict=True))
        expected = expected_observation(
            {**inputs, **named, "strength": float(strength)}
        )
        return sum(
            np.sum(expected[name] * probe)
            for name, probe in zip(
                ("estimate", "variance"), probes, strict=True
            )
        )

    assert_gradients_match(
        function,
        scalar,
        *(inputs[name] for name in ARRAYS),
        np.float32(strength),
    )


def test_a_plug_in_variance_has_no_gradient():
    inputs = simple_inputs()
    probe = normals(np.random.default_rng(2), 2, 4, 2, 3)

    def differentiate(flag):
        def function(estimate_factor, factor, *arrays):
            observed = sandwich_observation(
                **dict(zip(ARRAYS, arrays, strict=True)),
                mask=inputs["mask"],
                differentiate=flag,
            )
            return estimate_factor * weighted_sum(
                observed.estimate, probe
            ) + factor * keras.ops.sum(observed.variance)

        call = gradient_function(function)
        one, zero = np.float32(1.0), np.float32(0.0)
        arrays = [inputs[name] for name in ARRAYS]
        return call(one, zero, *arrays), call(zero, one, *arrays)

    (value, full), (variance, of_variance) = differentiate(True)
    (again, plug), (same, none) = differentiate(False)
    np.testing.assert_allclose([again, same], [value, variance], rtol=1e-6)
    for actual, wanted in zip(plug[2:], full[2:], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    assert all(np.any(gradient != 0.0) for gradient in of_variance[2:])
    for gradient in none[2:]:
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_values_give_a_float32_variance(dtype):
    inputs = simple_inputs("causal")

    def function(value):
        half = keras.ops.cast(value, dtype)
        return tuple(sandwich_observation(**{**inputs, "value": half}))

    observed = run(function, inputs["value"])
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in observed]
    assert dtypes == [dtype, "float32"]
    for actual, wanted in zip(observed, observe(inputs), strict=True):
        actual = numpy(keras.ops.cast(actual, "float32"))
        np.testing.assert_allclose(actual, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="JAX is compiled in most tests, torch runs eagerly",
)
def test_runs_compiled_for_any_batch_and_length():
    import tensorflow as tf

    inputs = simple_inputs("causal")
    names = (*ARRAYS, "mask")
    shapes = {
        "weights": (None, 2, None, None),
        "value": (None, None, 2, 3),
        "key_log_precision": (None, None, 5),
        "value_log_precision": (None, None, 2),
        "mask": (None, None, None),
    }
    compiled = tf.function(
        lambda *arrays: tuple(
            sandwich_observation(**dict(zip(names, arrays, strict=True)))
        ),
        input_signature=[
            tf.TensorSpec(shapes[name], tf.as_dtype(inputs[name].dtype))
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
    with pytest.raises(ValueError, match="Received: variance='token'"):
        sandwich_observation(**inputs, variance="token")
    with pytest.raises(ValueError, match=r"`mask` must.*Received: mask.shape"):
        sandwich_observation(**{**inputs, "mask": np.ones((2, 5), bool)})
    inputs["value"] = inputs["value"][:, :, :1]
    with pytest.raises(ValueError, match="number of heads.*Received: weights"):
        sandwich_observation(**inputs)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_weights_are_those_of_the_estimate(strength):
    rng = np.random.default_rng(21)
    weights = normals(rng, 2, 3, 4, 5)
    log_precision = normals(rng, 2, 5, 6)
    log_precision[0, 2] = NO_OBSERVATION
    mask = rng.random((2, 4, 5)) < 0.7
    mask[1, 0] = False

    known = (
        mask & (np.arange(5) != 2) | mask & (np.arange(2) == 1)[:, None, None]
    )
    power = np.exp(log_precision.astype("float64")).mean(axis=-1) ** strength
    power = np.where(known, power[:, None], 0.0)
    count = known.sum(axis=-1, keepdims=True)
    mean = power.sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    relative = power / np.where(count > 0, mean, 1.0)
    expected = np.where(known[:, None], weights * relative[:, None], 0.0)
    arguments = {"key_log_precision": log_precision, "mask": mask}
    result = sandwich_weights(weights, strength=strength, **arguments)
    np.testing.assert_allclose(numpy(result), expected, atol=1e-5)
    if strength == 1.0:
        default = numpy(sandwich_weights(weights, **arguments))
        np.testing.assert_array_equal(default, numpy(result))


def test_without_precisions_weights_are_hidden_or_as_they_are():
    weights = normals(np.random.default_rng(22), 1, 2, 3, 4)
    np.testing.assert_array_equal(numpy(sandwich_weights(weights)), weights)
    mask = np.array([[[True, False, True, True]]])
    hidden = numpy(sandwich_weights(weights.astype("float16"), mask=mask))
    assert hidden.dtype == "float32"
    np.testing.assert_allclose(hidden, weights * mask[:, None], rtol=1e-3)


def test_without_precisions_each_value_has_a_variance_of_one():
    rng = np.random.default_rng(23)
    weights, value = normals(rng, 2, 3, 4, 5), normals(rng, 2, 5, 3, 2)
    observed = sandwich_observation(weights, value)
    expected = sandwich_observation(
        weights, value, value_log_precision=np.zeros((2, 5, 3), "float32")
    )
    for x, y in zip(observed, expected, strict=True):
        np.testing.assert_allclose(numpy(x), numpy(y), rtol=1e-5)
    centered = value - value.mean(axis=1, keepdims=True)
    squares = np.square(weights.astype("float64"))
    spread = np.einsum("bhts,bshc->bthc", squares, centered**2)
    prior = squares.sum(axis=-1).transpose(0, 2, 1)[..., None] / 5
    np.testing.assert_allclose(numpy(observed[1]), spread + prior, rtol=1e-4)
