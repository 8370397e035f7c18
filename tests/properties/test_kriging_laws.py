"""Laws of Observe: what precision does, and what changes nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.kriging_forms import EXACT
from tests.properties.kriging_forms import blockwise
from tests.properties.kriging_forms import dense
from tests.properties.kriging_forms import kriging_arrays
from tests.properties.kriging_forms import sees
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import moderate
from tests.properties.strategies import numbers

BY_KEY = ("key", "value", "mean_log_precision", "value_log_precision")


def weights_of(form, arrays):
    """`(B, H, T, S)`."""
    outputs, _ = dense(form)(**arrays)
    return outputs[-1]


@cases(8)
@given(st.sampled_from(EXACT), numbers, st.floats(0.1, 50.0))
def test_a_more_precise_key_gets_more_weight(form, drawn, more):
    arrays = kriging_arrays(form, drawn)
    before = weights_of(form, arrays)
    chosen = drawn.rng(1).integers(form.sizes[2])
    arrays["mean_log_precision"][:, chosen] += np.float32(more)
    after = weights_of(form, arrays)
    gained = after - before
    assert np.all(gained[..., chosen] >= -1e-6)
    assert np.all(np.delete(gained, chosen, axis=-1) <= 1e-6)
    shared = (before[..., chosen] > 1e-3) & (before[..., chosen] < 0.99)
    if drawn.strength > 0.1:
        assert np.all(gained[..., chosen][shared] > 1e-6)


@cases(8)
@given(st.sampled_from(EXACT), numbers)
def test_equal_precisions_and_strength_zero_give_softmax(form, drawn):
    arrays = kriging_arrays(form, drawn._replace(strength=0.0))
    plain = weights_of(form, arrays)
    visible = sees(form, arrays)[:, None]
    assert np.all(plain[np.broadcast_to(~visible, plain.shape)] == 0)
    np.testing.assert_allclose(
        plain.sum(-1),
        np.broadcast_to(visible.any(-1), plain.shape[:-1]),
        atol=1e-5,
    )
    uniform = drawn._replace(precision="uniform", strength=1.0)
    arrays = kriging_arrays(form, uniform)
    assert_close([weights_of(form, arrays)], [plain], 1e-5)


@cases(8)
@given(st.sampled_from(EXACT), moderate, st.sampled_from((-27.0, 27.0)))
def test_a_vague_key_gets_no_weight_and_a_sharp_one_all(form, drawn, level):
    arrays = kriging_arrays(form, drawn._replace(strength=1.0))
    chosen = drawn.rng(1).integers(form.sizes[2])
    arrays["mean_log_precision"][:, chosen] = level
    weights = weights_of(form, arrays)
    visible = np.broadcast_to(sees(form, arrays)[:, None], weights.shape)
    shared = visible[..., chosen] & (visible.sum(-1) > 1)
    np.testing.assert_allclose(
        weights[..., chosen][shared], float(level > 0), atol=1e-5
    )


@cases(8)
@given(st.sampled_from([f for f in EXACT if not f.causal]), moderate)
def test_the_order_of_keys_does_not_matter(form, drawn):
    arrays = kriging_arrays(form, drawn)
    expected, of_expected = blockwise(form)(**arrays)
    order = drawn.rng(1).permutation(form.sizes[2])
    shuffled = arrays | {name: arrays[name][:, order] for name in BY_KEY}
    if form.masked:
        shuffled["mask"] = arrays["mask"][..., order]
    actual, gradients = blockwise(form)(**shuffled)
    assert_close(actual, expected, 1e-4)
    for name, gradient in of_expected.items():
        moved = gradient[:, order] if name in BY_KEY else gradient
        assert_close([gradients[name]], [moved], 1e-4)


@cases(8)
@given(
    st.sampled_from([f for f in EXACT if f.sizes[0] > 1 and f.masked]), numbers
)
def test_neither_other_rows_nor_hidden_keys_matter(form, drawn):
    arrays = kriging_arrays(form, drawn)
    different = {"seed": drawn.seed + 1, "precision": "ends", "value": (9, 99)}
    other = kriging_arrays(form, drawn._replace(**different))
    other |= {"mask": arrays["mask"].copy(), "strength": arrays["strength"]}
    hidden = ~sees(form, arrays).any(axis=1)[0]
    for name in other.keys() - {"strength"}:
        if name in BY_KEY:
            other[name][0, ~hidden] = arrays[name][0, ~hidden]
        elif name != "strength":
            other[name][0] = arrays[name][0]
    masked = ~arrays["mask"].any(axis=1)[0]
    other["value_log_precision"][0, masked] += 100.0
    expected, of_expected = blockwise(form)(**arrays)
    actual, gradients = blockwise(form)(**other)
    assert_close([x[0] for x in actual], [x[0] for x in expected], 1e-6)
    for name in ("query", *BY_KEY):
        wanted = of_expected[name][0]
        if name in BY_KEY:
            np.testing.assert_array_equal(wanted[hidden], 0.0)
        assert_close([gradients[name][0]], [wanted], 1e-6)


@cases(8)
@given(
    st.sampled_from([f for f in EXACT if f.differentiate]),
    numbers,
    st.sampled_from((2.0**-10, 0.5, 8.0)),
    st.sampled_from((0.0, 64.0, -1024.0)),
)
def test_scale_and_shift_of_the_values(form, drawn, scale, shift):
    arrays = kriging_arrays(form, drawn)
    # Rounded so that the shifted values are numbers of float32.
    arrays["value"] = np.round(arrays["value"] * 64) / 64
    (estimate, variance, size, prior), _ = blockwise(form)(**arrays)
    seen = size > 0
    (moved, *rest), _ = blockwise(form)(
        **arrays | {"value": arrays["value"] + np.float32(shift)}
    )
    assert_close([moved], [np.where(seen, estimate + shift, 0.0)], 1e-5)
    assert_close(rest, [variance, size, prior], 1e-4)
    factor = np.float32(scale)
    (scaled, *rest), _ = blockwise(form)(
        **arrays
        | {
            "value": factor * arrays["value"],
            "value_log_precision": arrays["value_log_precision"]
            - 2 * np.log(factor),
        }
    )
    assert_close([scaled / scale], [estimate], 1e-6)
    in_units = np.where(seen, prior - 2 * np.log(scale), prior)
    assert_close(
        [rest[0] / scale**2, *rest[1:]], [variance, size, in_units], 1e-4
    )


@cases(8)
@given(
    st.sampled_from([f for f in EXACT if f.masked and not f.per_head]), numbers
)
def test_a_key_of_precision_zero_is_not_seen(form, drawn):
    arrays = kriging_arrays(form, drawn)
    unknown = drawn.rng(1).random(form.sizes[2]) < 0.5
    arrays["mean_log_precision"][:, unknown] = -np.inf
    for observe in (blockwise, dense):
        run = observe(form)(**arrays)
        assert_finite(run)
        hidden = arrays | {"mask": arrays["mask"] & ~unknown}
        expected, _ = observe(form)(**hidden)
        assert_close(run[0][:3], expected[:3], 1e-4)
