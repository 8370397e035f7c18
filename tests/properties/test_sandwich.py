"""Observe without normalised weights: finite, right, and its laws."""

import functools
from typing import Any
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import sandwich_observation
from keras_bft.ops import sandwich_weights
from tests.ops.arrays import normals
from tests.properties.programs import Program
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import numbers
from tests.reference import bft_reference as reference


class Form(NamedTuple):
    """What JAX compiles for.

    Attributes:
        sizes: Batch, queries, keys, heads and channels.
        width: Of the keys' precision.
        dtype: Of the values.
        variance: `"channel"` or `"head"`.
    """

    sizes: tuple[int, int, int, int, int]
    width: int = 1
    dtype: str = "float32"
    variance: str = "channel"


FORMS = [
    Form((1, 1, 1, 1, 1)),
    Form((2, 4, 5, 2, 3), 6),
    Form((2, 4, 5, 2, 3), 6, "float16", "head"),
    Form((2, 4, 5, 2, 3), 1, "bfloat16"),
    Form((3, 1, 4, 1, 2), 1, variance="head"),
]
EXACT = [form for form in FORMS if form.dtype == "float32"]
BY_KEY = ("value", "key_log_precision", "value_log_precision")


@functools.cache
def program(form: Form) -> Program:
    """The observation, the weights, and what they are by themselves."""

    def observe(
        weights: Any,
        value: Any,
        key_log_precision: Any,
        value_log_precision: Any,
        strength: Any,
        mask: Any,
    ) -> Any:
        observed = sandwich_observation(
            weights,
            value,
            key_log_precision,
            mask,
            value_log_precision,
            strength,
            form.variance,
        )
        used = sandwich_weights(weights, key_log_precision, mask, strength)
        return (*observed, used)

    return Program(
        observe,
        ("weights", *BY_KEY, "strength"),
        dtypes={"value": form.dtype},
    )


def make_arrays(form: Form, drawn: Any) -> dict[str, Any]:
    batch, queries, keys, heads, channels = form.sizes
    rng = drawn.rng()
    return {
        "weights": normals(rng, batch, heads, queries, keys) / keys,
        "value": drawn.values(rng, batch, keys, heads, channels),
        "key_log_precision": drawn.log_precision(rng, batch, keys, form.width),
        "value_log_precision": drawn.log_precision(rng, batch, keys, heads),
        "strength": np.float32(drawn.strength),
        "mask": drawn.visible(batch, queries, keys),
    }


@cases(16)
@given(st.sampled_from(FORMS), numbers)
def test_finite(form, drawn):
    arrays = make_arrays(form, drawn)
    run = program(form)(**arrays)
    assert_finite(run)
    assert np.all(run[0][1] >= 0)
    blind = ~arrays["mask"].any(-1)
    for output in run[0][:2]:
        assert np.all(output[blind] == 0)


@cases(8)
@given(st.sampled_from(EXACT), numbers)
def test_reference(form, drawn):
    arrays = make_arrays(form, drawn)
    (estimate, variance, _), _ = program(form)(**arrays)
    exact = {
        name: np.asarray(x, None if name == "mask" else "float64")
        for name, x in arrays.items()
    }
    # The reference has no strength; it is the exponent of the precision.
    precision = np.exp(exact["key_log_precision"]).mean(-1, keepdims=True)
    expected = reference.sandwich_observation(
        exact["weights"],
        exact["value"],
        precision**drawn.strength,
        exact["mask"],
        np.exp(exact["value_log_precision"]),
    )
    if form.variance == "head":
        expected["variance"] = expected["variance"].mean(-1, keepdims=True)
    assert_close([estimate], [expected["estimate"]], 1e-5)
    np.testing.assert_allclose(
        variance, expected["variance"], rtol=1e-3, atol=1e-5
    )


@cases(8)
@given(st.sampled_from(EXACT), numbers, st.floats(0.1, 20.0))
def test_what_precision_does_to_the_weights(form, drawn, more):
    arrays = make_arrays(form, drawn)
    plain = np.where(arrays["mask"][:, None], arrays["weights"], 0.0)
    for equal in (
        drawn._replace(strength=0.0),
        drawn._replace(precision="uniform"),
    ):
        (*_, weights), _ = program(form)(**make_arrays(form, equal))
        np.testing.assert_allclose(weights, plain, rtol=1e-4, atol=1e-6)
    (*_, before), _ = program(form)(**arrays)
    chosen = drawn.rng(1).integers(form.sizes[2])
    arrays["key_log_precision"][:, chosen] += np.float32(more)
    (*_, after), _ = program(form)(**arrays)
    gained = np.abs(after) - np.abs(before)
    assert np.all(gained[..., chosen] >= -1e-5)
    assert np.all(np.delete(gained, chosen, axis=-1) <= 1e-5)


@cases(6)
@given(st.sampled_from(EXACT), numbers)
def test_neither_order_nor_rows_nor_hidden_keys_matter(form, drawn):
    arrays = make_arrays(form, drawn)
    order = drawn.rng(1).permutation(form.sizes[2])
    other = make_arrays(form, drawn._replace(seed=drawn.seed + 1))
    other |= {"mask": arrays["mask"], "strength": arrays["strength"]}
    hidden = ~arrays["mask"][0].any(0)
    other["weights"][0] = arrays["weights"][0]
    for name in BY_KEY:
        other[name][0, ~hidden] = arrays[name][0, ~hidden]
        other[name] = other[name][:, order]
    for name in ("weights", "mask"):
        other[name] = other[name][..., order]
    (estimate, variance, weights), of_expected = program(form)(**arrays)
    actual, gradients = program(form)(**other)
    assert_close(
        [x[0] for x in actual],
        [estimate[0], variance[0], weights[0][..., order]],
        1e-5,
    )
    for name in BY_KEY:
        np.testing.assert_array_equal(of_expected[name][0, hidden], 0.0)


@cases(6)
@given(st.sampled_from(EXACT), numbers, st.sampled_from((0.25, 8.0)))
def test_units_of_the_values(form, drawn, scale):
    arrays = make_arrays(form, drawn)
    (estimate, variance, weights), _ = program(form)(**arrays)
    factor = np.float32(scale)
    # Variances beyond exp(40) count as that, those of 1e12 do not reach it.
    arrays["value"] *= factor
    arrays["value_log_precision"] -= 2 * np.log(factor)
    (scaled, of_scaled, same), _ = program(form)(**arrays)
    assert_close(
        [scaled / scale, of_scaled / scale**2, same],
        [estimate, variance, weights],
        1e-5,
    )


@cases(6)
@given(
    st.sampled_from(EXACT), numbers, st.sampled_from((-np.inf, NO_OBSERVATION))
)
def test_a_key_of_precision_zero_is_not_seen(form, drawn, nothing):
    arrays = make_arrays(form, drawn)
    unknown = drawn.rng(1).random(form.sizes[2]) < 0.5
    arrays["key_log_precision"][:, unknown] = nothing
    run = program(form)(**arrays)
    assert_finite(run)
    expected, _ = program(form)(**arrays | {"mask": arrays["mask"] & ~unknown})
    assert_close(run[0], expected, 1e-5)
