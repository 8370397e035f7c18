"""Layers are finite, and what they give is right, whatever comes in."""

import functools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.layers.layer_checks import arrays as numpy_arrays
from tests.layers.layer_checks import numpy
from tests.properties.layer_forms import ATTENTION
from tests.properties.layer_forms import EXACT
from tests.properties.layer_forms import FORMS
from tests.properties.layer_forms import HSTU
from tests.properties.layer_forms import LIGHT
from tests.properties.layer_forms import layer_arrays
from tests.properties.layer_forms import program
from tests.properties.layer_forms import state_program
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import moderate
from tests.properties.strategies import numbers

MIXED = [f for f in FORMS if f._replace(policy="float32") in EXACT[:4]]
MIXED = [f for f in MIXED if f.policy != "float32"]
# Weights that are zero: none, as residual branches start, and others.
KERNELS = [(), ("output/kernel",), ("value/kernel",), ("gamma",), ("kernel",)]


@cases(30)
@given(st.sampled_from(FORMS), numbers, st.sampled_from(KERNELS))
def test_finite(form, drawn, dead):
    arrays = layer_arrays(form, drawn)
    assert_finite(program(form)(drawn, arrays, **dict.fromkeys(dead, 0.0)))


@cases(8)
@given(st.sampled_from([LIGHT, HSTU]), numbers)
def test_strength_zero_is_the_standard_layer(form, drawn):
    arrays = layer_arrays(form, drawn)
    drawn = drawn._replace(strength=0.0)
    actual, gradients = state_program(form, True)(drawn, arrays)
    expected, of_expected = state_program(form, False)(drawn, arrays)
    assert_close(actual, expected, 1e-5)
    for name, wanted in of_expected.items():
        assert_close([gradients[name]], [wanted], 1e-4)


@cases(8)
@given(st.sampled_from(MIXED), moderate)
def test_mixed_precision_is_near_float32(form, drawn):
    arrays = layer_arrays(form, drawn)
    expected, _ = program(form._replace(policy="float32"))(drawn, arrays)
    actual, _ = program(form)(drawn, arrays)
    tolerance = 4e-2 if "bfloat16" in form.policy else 2e-2
    assert_close(actual, expected, tolerance)


@cases(6)
@given(st.sampled_from(EXACT), numbers, st.floats(0.1, 20.0))
def test_more_process_noise_lowers_the_precision(form, drawn, more):
    arrays = layer_arrays(form, drawn)
    (state, log_precision), (same, lower) = (
        program(form)(drawn, arrays, log_process_noise=noise)[0]
        for noise in (-2.0, more - 2.0)
    )
    np.testing.assert_array_equal(same, state)
    assert np.all(lower <= log_precision + 1e-5)


@cases(6)
@given(moderate, st.sampled_from((0.5, 20.0)))
def test_units_of_the_stream(drawn, scale):
    arrays = layer_arrays(ATTENTION, drawn)
    expected, _ = program(ATTENTION)(drawn, arrays)
    arrays["state"] *= np.float32(scale)
    arrays["log_precision"] -= np.float32(2 * np.log(scale))
    actual, _ = program(ATTENTION)(drawn, arrays)
    assert_close(actual, expected, 1e-3)


@functools.cache
def step() -> Any:
    """One token of a decoder with a cache."""
    layer = program(LIGHT).layer

    def decode(
        state: Any, log_precision: Any, visible: Any, cache: Any, index: Any
    ) -> Any:
        return layer(
            state,
            log_precision,
            attention_mask=visible,
            cache=cache,
            cache_index=index,
        )

    return compiled(decode, layer)


@cases(6)
@given(numbers)
def test_cached_decoding_equals_uncached(drawn):
    arrays = layer_arrays(LIGHT, drawn)
    expected, _ = program(LIGHT)(drawn, arrays)
    batch, length, _ = LIGHT.sizes
    real = arrays["padding_mask"]
    cache = program(LIGHT).layer.make_cache(batch, length)
    position = np.arange(length)
    for index in range(length):
        now = slice(index, index + 1)
        visible = (real & (position <= index))[:, None]
        *outputs, cache = step()(
            arrays["state"][:, now],
            arrays["log_precision"][:, now],
            visible,
            cache,
            np.int32(index),
        )
        wanted = [x[:, now] for x in expected]
        assert_close(numpy_arrays(outputs), wanted, 1e-4)
    assert np.all(np.isfinite(numpy(cache["log_precision"])))
