"""Where the items of a sequence stand, and what stands beside them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.layer_forms import EXACT
from tests.properties.layer_forms import layer_arrays
from tests.properties.layer_forms import program
from tests.properties.programs import assert_close
from tests.properties.settings import cases
from tests.properties.strategies import moderate
from tests.properties.strategies import numbers

CAUSAL = [f for f in EXACT if dict(f.options).get("causal", f.layer == "hstu")]
# HSTU tells items apart by their distance.
UNORDERED = [f for f in EXACT if f not in CAUSAL and f.layer != "hstu"]
INPUTS = ("state", "log_precision")


@cases(8)
@given(st.sampled_from(EXACT), numbers)
def test_neither_other_rows_nor_padding_matter(form, drawn):
    arrays = layer_arrays(form, drawn)
    expected, _ = program(form)(drawn, arrays)
    other = layer_arrays(form, drawn._replace(seed=drawn.seed + 1))
    real = arrays["padding_mask"][0]
    for name in INPUTS:
        other[name][0, real] = arrays[name][0, real]
    other["padding_mask"][0] = real
    actual, _ = program(form)(drawn, other)
    assert_close(
        [x[0, real] for x in actual], [x[0, real] for x in expected], 1e-5
    )


@cases(6)
@given(st.sampled_from(CAUSAL), numbers, st.integers(1, 4))
def test_later_items_change_nothing_earlier(form, drawn, first):
    arrays = layer_arrays(form, drawn)
    expected, _ = program(form)(drawn, arrays)
    other = layer_arrays(form, drawn._replace(seed=drawn.seed + 1))
    for name in arrays:
        other[name][:, :first] = arrays[name][:, :first]
    actual, _ = program(form)(drawn, other)
    assert_close(
        [x[:, :first] for x in actual], [x[:, :first] for x in expected], 1e-5
    )


@cases(12)
@given(st.sampled_from(EXACT), moderate, st.integers(2, 4))
def test_where_padding_stands_does_not_matter(form, drawn, count):
    right = layer_arrays(form, drawn)
    length = form.sizes[1]
    right["padding_mask"][:] = np.arange(length) < count
    places = np.sort(drawn.rng(1).permutation(length)[:count])
    order = np.full(length, -1)
    order[places] = np.arange(count)
    # Padding on the left, on the right and between the items.
    moved = {name: x[:, order] for name, x in right.items()}
    moved["padding_mask"][:] = order >= 0
    actual, _ = program(form)(drawn, moved)
    expected, _ = program(form)(drawn, right)
    assert_close(
        [x[:, places] for x in actual], [x[:, :count] for x in expected], 1e-4
    )


@cases(6)
@given(st.sampled_from(UNORDERED), moderate)
def test_without_positions_the_order_does_not_matter(form, drawn):
    arrays = layer_arrays(form, drawn)
    order = drawn.rng(1).permutation(form.sizes[1])
    shuffled = {name: x[:, order] for name, x in arrays.items()}
    actual, _ = program(form)(drawn, shuffled)
    expected, _ = program(form)(drawn, arrays)
    assert_close(actual, [x[:, order] for x in expected], 1e-4)
