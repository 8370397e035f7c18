"""Numbers of the layer: a reference, the standard layer, padding, order."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from tests.compiled import compiled
from tests.layers.filter_checks import check_causality
from tests.layers.filter_checks import check_rows_of_padding
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import copy_weights
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.layer_checks import weighted_sum
from tests.layers.reference_layer import bft_layer
from tests.layers.reference_layer import normalize
from tests.layers.reference_layer import predict
from tests.layers.standard_layer import StandardLayer

B, T, D = 2, 4, 8
PADDING = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
CAUSAL = np.tril(np.ones((T, T), bool))[None]
each_form = pytest.mark.parametrize("form", ["light", "full"])
each_mode = pytest.mark.parametrize("mode", ["renormalized", "inverted"])


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def built(width=D, **options):
    layer = BFTLayer(4, 6, **options)
    layer.build((B, T, D), (B, T, width))
    randomize(layer)
    return layer


CASES = [
    {"precision": precision, "normalization": norm, "gated": gated, **rest}
    for precision, norm, gated, rest in [
        ("channel", "layer", False, {}),
        ("channel", "rms", True, {"activation": "silu"}),
        ("token", "layer", True, {"key_precision": "per_head"}),
        ("token", "rms", False, {"carry_units": False}),
        ("channel", "layer", True, {"carry_units": False, "strength": 0.5}),
        ("channel", "rms", False, {"key_precision": "per_head"}),
        ("channel", "rms", False, {"num_key_value_heads": 2, "head_dim": 3}),
        ("channel", "layer", False, {"normalize_first": False}),
        ("token", "rms", True, {"normalize_first": False, "use_bias": False}),
        (
            "channel",
            "layer",
            False,
            {"normalize_first": False, "carry_units": False, "prior_dof": 2.0},
        ),
        ("token", "layer", False, {"initial_log_process_noise": None}),
    ]
]


@each_form
@pytest.mark.parametrize("options", CASES, ids=str)
def test_equals_the_reference(options, form):
    state, log_precision = inputs(1 if options["precision"] == "token" else D)
    layer = built(log_precision.shape[-1], form=form, causal=True, **options)
    visible = PADDING[:, None] & CAUSAL
    call = compiled(layer, layer)
    outputs = arrays(call(state, log_precision, padding_mask=PADDING))
    expected = bft_layer(layer, state, log_precision, visible)
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_a_log_precision_a_token_is_that_of_all_its_channels():
    state, log_precision = inputs(1)
    layer = built(form="full")
    outputs = arrays(layer(state, log_precision))
    repeated = arrays(layer(state, np.repeat(log_precision, D, -1)))
    for x, y in zip(outputs, repeated, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@each_form
@pytest.mark.parametrize(
    "normalize_first, causal", [(True, True), (False, False)]
)
def test_strength_zero_is_the_standard_layer(form, normalize_first, causal):
    state, log_precision = inputs()
    options = {"normalize_first": normalize_first, "causal": causal}
    layer = built(form=form, strength=0.0, **options)
    plain = BFTLayer(4, 6, bayesian=False, **options)
    plain.build((B, T, D))
    # Without process noise and strength it has the same weights.
    assert copy_weights(layer, plain) == {
        "feed_forward/log_process_noise",
        "strength",
    }
    standard = StandardLayer(layer, D)
    assert len(standard.variables) == len(plain.weights)
    leaf = keras.Variable(state)

    expected = numpy(standard(state, PADDING))
    value, gradients = variable_gradients(
        lambda: weighted_sum(standard(leaf.value, PADDING), PADDING),
        [leaf, *standard.own_variables],
    )
    filtered = numpy(layer(state, log_precision, padding_mask=PADDING)[0])
    np.testing.assert_allclose(filtered[PADDING], expected[PADDING], atol=1e-5)
    np.testing.assert_allclose(
        numpy(plain(state, padding_mask=PADDING))[PADDING],
        expected[PADDING],
        atol=1e-5,
    )
    again, filter_gradients = variable_gradients(
        lambda: weighted_sum(
            layer(leaf.value, log_precision, padding_mask=PADDING)[0], PADDING
        ),
        [leaf, *standard.variables],
    )
    assert again == pytest.approx(value, rel=1e-5)
    names = ["input"] + [v.path for v in standard.variables]
    for name, x, y in zip(names, filter_gradients, gradients, strict=True):
        np.testing.assert_allclose(
            x, y.reshape(x.shape), rtol=1e-5, atol=1e-5, err_msg=name
        )

    mapping = {v.path.split("/", 1)[1]: v for v in plain.weights}
    _, plain_gradients = variable_gradients(
        lambda: weighted_sum(plain(leaf.value, padding_mask=PADDING), PADDING),
        [leaf] + [mapping[v.path.split("/", 1)[1]] for v in standard.variables],
    )
    for name, x, y in zip(names, plain_gradients, gradients, strict=True):
        np.testing.assert_allclose(
            x, y.reshape(x.shape), rtol=1e-5, atol=1e-5, err_msg=name
        )


@each_form
def test_strength_zero_of_gated_grouped_rms_layers(form):
    state, log_precision = inputs()
    options = {
        "normalization": "rms",
        "gated": True,
        "activation": "silu",
        "num_key_value_heads": 2,
        "causal": True,
    }
    layer = built(form=form, strength=0.0, **options)
    plain = BFTLayer(4, 6, bayesian=False, **options)
    plain.build((B, T, D))
    copy_weights(layer, plain)
    visible = PADDING[:, None] & CAUSAL
    # With uniform precision and strength zero the reference is plain
    # attention with a residual connection.
    expected, _ = bft_layer(layer, state, np.zeros((B, T, 1)), visible)
    outputs = layer(state, log_precision, padding_mask=PADDING)[0]
    np.testing.assert_allclose(numpy(outputs), expected, atol=1e-5)
    np.testing.assert_allclose(
        numpy(plain(state, padding_mask=PADDING)), expected, atol=1e-5
    )
    stronger = built(form=form, strength=1.0, **options)
    outputs = stronger(state, log_precision, padding_mask=PADDING)[0]
    assert np.max(np.abs(numpy(outputs) - expected)) > 1e-2


@each_form
@pytest.mark.parametrize("normalize_first", [True, False])
def test_without_a_gain_the_innovation_is_added_whole(form, normalize_first):
    state, log_precision = inputs()
    options = {"form": form, "normalize_first": normalize_first}
    layer = built(kalman_gain=False, strength=0.5, **options)
    outputs = arrays(layer(state, log_precision, padding_mask=PADDING))
    usual = built(strength=0.5, **options)
    innovation, observed = arrays(
        usual.attention(state, log_precision, padding_mask=PADDING)
    )
    after = state + innovation
    posterior = np.logaddexp(log_precision + np.log(0.5), observed)
    for index in range(2):
        if not normalize_first:
            norm = usual.post_norms[index]
            after, spread, _ = normalize(norm, after)
            posterior = posterior + 2 * np.log(spread[..., None])
            posterior -= np.log(numpy(norm.gamma) ** 2)
        if index == 0:
            after, posterior = predict(
                usual.feed_forward, after, np.exp(posterior)
            )
            posterior = np.log(posterior)
    np.testing.assert_allclose(outputs[0], after, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs[1], posterior, rtol=1e-5, atol=2e-5)


def test_without_weights_and_gain_the_state_is_the_standard_layers():
    state, log_precision = inputs()
    layer = built(kriging_weights=False, kalman_gain=False, causal=True)
    plain = BFTLayer(4, 6, bayesian=False, causal=True)
    plain.build((B, T, D))
    copy_weights(layer, plain)
    np.testing.assert_allclose(
        numpy(layer(state, log_precision, padding_mask=PADDING)[0]),
        numpy(plain(state, padding_mask=PADDING)),
        atol=1e-5,
    )


def test_open_gates_give_the_standard_layer():
    state, _ = inputs()
    plain = BFTLayer(4, 6, bayesian=False, causal=True)
    gated = BFTLayer(4, 6, bayesian=False, causal=True, gated_attention=True)
    plain.build((B, T, D))
    gated.build((B, T, D))
    randomize(gated)
    names = {"attention/gate/kernel", "attention/gate/bias"}
    assert copy_weights(gated, plain) == names
    expected = numpy(plain(state, padding_mask=PADDING))
    outputs = numpy(gated(state, padding_mask=PADDING))
    assert np.max(np.abs(outputs - expected)) > 1e-2
    gated.attention.gate_dense.bias.assign(np.full(D, 100.0))
    outputs = numpy(gated(state, padding_mask=PADDING))
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


@each_form
def test_precise_and_imprecise_keys(form):
    state, log_precision = inputs()
    layer = built(form=form, causal=True)
    others = np.ones((B, T), bool)
    others[:, 1] = False
    log_precision[:, 1] = -60.0
    later = np.arange(T) > 1
    outputs = arrays(layer(state, log_precision))
    expected = arrays(layer(state, log_precision, padding_mask=others))
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x[:, later], y[:, later], atol=1e-4)
    log_precision[:, 1] = 60.0
    outputs = arrays(layer(state, log_precision))
    expected = arrays(layer(state, log_precision, padding_mask=~others))
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x[:, later], y[:, later], atol=1e-4)


@each_form
@pytest.mark.parametrize(
    "mode, dropout, causal",
    [
        ("inverted", 0.0, True),
        ("inverted", 0.5, False),
        ("renormalized", 0.5, True),
    ],
)
def test_rows_of_padding_are_finite(form, mode, dropout, causal):
    state, log_precision = inputs()
    layer = built(
        form=form,
        causal=causal,
        dropout=dropout,
        dropout_mode=mode,
        trainable_strength=True,
    )
    check_rows_of_padding(layer, state, log_precision, PADDING)


@each_form
@each_mode
@pytest.mark.parametrize("normalize_first", [False, True])
def test_the_future_changes_nothing_earlier(form, mode, normalize_first):
    state, log_precision = inputs()
    options = {
        "form": form,
        "causal": True,
        "dropout": 0.5,
        "dropout_mode": mode,
        "normalize_first": normalize_first,
        "seed": 3,
    }
    changed, changed_log_precision = state.copy(), log_precision.copy()
    other, _ = inputs(seed=1)
    changed[:, 3:] = 5.0 * other[:, 3:]
    changed_log_precision[:, 3:] += 20.0
    check_causality(
        lambda: built(**options),
        (state, log_precision),
        (changed, changed_log_precision),
    )


@each_form
@pytest.mark.parametrize("causal", [False, True])
def test_padding_may_stand_right_left_or_nowhere(form, causal):
    rng = np.random.default_rng(0)
    state, log_precision = normal(rng, 1, 3, D), normal(rng, 1, 3, D)
    layer = built(form=form, causal=causal)
    call = compiled(layer, layer)
    expected = arrays(call(state, log_precision))
    for left, right in ((0, 2), (2, 0), (1, 1)):
        pads = [(0, 0), (left, right), (0, 0)]
        # What stands at padding must not matter.
        padded = np.pad(state, pads, constant_values=50.0)
        its_log_precision = np.pad(log_precision, pads, constant_values=9.0)
        mask = np.pad(np.ones((1, 3), bool), pads[:2])
        outputs = arrays(call(padded, its_log_precision, padding_mask=mask))
        for x, y in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(x[mask], y[0], atol=1e-5)


@each_form
def test_scaling_the_stream_scales_nothing_that_is_relative(form):
    # The gain compares precisions of one unit: scaling the state by c, its
    # precision by c^-2 leaves the observation's precision as it was, so
    # with strength c^2 the gain is as before.
    state, log_precision = inputs()
    layer = built(form=form, epsilon=1e-12)
    attention, scale = layer.attention, 30.0
    innovation, observed = attention(state, log_precision)
    shifted = log_precision - np.float32(2 * np.log(scale))
    scaled = attention(state * np.float32(scale), shifted)
    np.testing.assert_allclose(numpy(scaled[0]), numpy(innovation), atol=5e-5)
    np.testing.assert_allclose(numpy(scaled[1]), numpy(observed), atol=5e-5)


@each_form
def test_a_step_gains_precision_in_update_and_loses_it_to_noise(form):
    state, log_precision = inputs()
    previous = np.inf
    for noise in (None, -6.0, -2.0, 1.0):
        layer = built(form=form, initial_log_process_noise=noise)
        if noise is not None:
            layer.feed_forward.log_process_noise.assign(np.full(D, noise))
        observed = layer.attention(state, log_precision)
        _, updated = layer.residual(state, log_precision, *observed)
        assert np.all(numpy(updated) > log_precision)
        current = numpy(layer(state, log_precision)[1])
        assert np.all(current < previous)
        previous = current
