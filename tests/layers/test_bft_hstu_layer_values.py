"""What the layer computes, against the reference and the standard layer."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTHSTULayer
from keras_bft.ops import NO_OBSERVATION
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
from tests.layers.reference_hstu_layer import hstu_layer

B, T, D = 2, 4, 8
# The second row starts with padding, so its first query sees nothing.
PADDING = np.array([[1, 0, 1, 0], [0, 1, 1, 1]], bool)
TIMES = np.array([[0, 60, 9, 3600], [9, 4, 4, 86400]], "int32")
CAUSAL = np.tril(np.ones((T, T), bool))[None]
VISIBLE = PADDING[:, None] & CAUSAL
each_form = pytest.mark.parametrize("form", ["light", "full"])


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def built(width=D, max_length=T, num_heads=2, **options):
    layer = BFTHSTULayer(num_heads, max_length, **options)
    layer.build((B, T, D), (B, T, width), (B, T))
    randomize(layer)
    return layer


CASES = [
    {},
    {"precision": "token", "activation": "gelu"},
    {"carry_units": False, "strength": 0.5, "num_time_buckets": 6},
    {"head_dim": 3, "max_length": 3, "initial_log_process_noise": None},
    {"num_heads": 1, "causal": False, "strength": 0.3, "epsilon": 1e-3},
]


@each_form
@pytest.mark.parametrize("options", CASES, ids=str)
def test_equals_the_reference(options, form):
    width = 1 if options.get("precision") == "token" else D
    state, log_precision = inputs(width)
    layer = built(width, form=form, **options)
    visible = VISIBLE
    if not layer.attention.causal:
        visible = np.broadcast_to(PADDING[:, None], (B, T, T))
    call = compiled(layer, layer)
    outputs = arrays(
        call(state, log_precision, timestamps=TIMES, padding_mask=PADDING)
    )
    expected = hstu_layer(layer, state, log_precision, visible, PADDING, TIMES)
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
    # The observation is neither ignored nor all that counts.
    moved = np.max(np.abs(outputs[0] - state), axis=-1)
    assert np.max(moved) > 1e-2


@each_form
def test_strength_zero_is_the_standard_layer(form):
    state, log_precision = inputs()
    layer = built(form=form, strength=0.0)
    plain = BFTHSTULayer(2, T, bayesian=False)
    plain.build((B, T, D), timestamps_shape=(B, T))
    assert copy_weights(layer, plain) == {"log_process_noise", "strength"}
    options = {"timestamps": TIMES, "padding_mask": PADDING}

    # Without precision and strength the reference is the layer of the paper.
    expected, _ = hstu_layer(
        layer, state, np.zeros((B, T, 1)), VISIBLE, PADDING, TIMES
    )
    np.testing.assert_allclose(
        numpy(plain(state, **options)), expected, atol=1e-5
    )
    leaf = keras.Variable(state)
    value, gradients = variable_gradients(
        lambda: weighted_sum(plain(leaf.value, **options)),
        [leaf, *plain.weights],
    )
    named = {w.path.split("/", 1)[1]: w for w in layer.weights}
    again, filtered = variable_gradients(
        lambda: weighted_sum(layer(leaf.value, log_precision, **options)[0]),
        [leaf, *(named[w.path.split("/", 1)[1]] for w in plain.weights)],
    )
    assert again == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(
        numpy(layer(state, log_precision, **options)[0]),
        numpy(plain(state, **options)),
        atol=1e-5,
    )
    names = ["input", *(w.path for w in plain.weights)]
    for name, x, y in zip(names, filtered, gradients, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5, err_msg=name)
        assert np.any(y != 0.0), name
    layer.strength.assign(1.0)
    stronger = numpy(layer(state, log_precision, **options)[0])
    assert np.max(np.abs(stronger - expected)) > 1e-2


@each_form
def test_vague_precise_and_unknown_keys(form):
    state, log_precision = inputs()
    attention = built(form=form).attention
    changed = state.copy()
    changed[:, 0] = inputs(seed=1)[0][:, 0]

    def innovation(state, level, key=0):
        log_precision[:, :2] = 0.0
        log_precision[:, key] = level
        return arrays(attention(state, log_precision))[0][:, 2:]

    # A vague key has no weight, and beside a precise one no other has any.
    for level, key in ((-30.0, 0), (60.0, 1)):
        np.testing.assert_allclose(
            innovation(changed, level, key),
            innovation(state, level, key),
            atol=1e-5,
        )
    differs = innovation(changed, 0.0) - innovation(state, 0.0)
    assert np.max(np.abs(differs)) > 1e-2

    # A key of no precision is not seen at all.
    unknown = np.where(np.arange(T) == 1, NO_OBSERVATION, 0.0)[:, None]
    unknown = np.broadcast_to(unknown, (B, T, D)).astype("float32")
    hidden = np.broadcast_to(np.arange(T) != 1, (B, T, T))
    for x, y in zip(
        arrays(attention(state, unknown)),
        arrays(attention(state, 0.0 * unknown, attention_mask=hidden)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@each_form
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_rows_of_padding_are_finite(form, dropout):
    state, log_precision = inputs()
    layer = built(form=form, dropout=dropout, trainable_strength=True)
    after, _ = check_rows_of_padding(
        layer, state, log_precision, PADDING, timestamps=TIMES
    )
    # Nothing was observed.
    np.testing.assert_allclose(after[1], state[1], atol=1e-6)


@each_form
def test_the_future_changes_nothing_earlier(form):
    state, log_precision = inputs()
    options = {"form": form, "dropout": 0.5, "seed": 3}
    changed, changed_log_precision = state.copy(), log_precision.copy()
    changed[:, 3:] = 5.0 * inputs(seed=1)[0][:, 3:]
    changed_log_precision[:, 3:] += 20.0
    later = TIMES.copy()
    later[:, 3:] *= 7
    check_causality(
        lambda: built(**options),
        (state, log_precision, TIMES),
        (changed, changed_log_precision, later),
    )


@each_form
@pytest.mark.parametrize("causal", [False, True])
def test_padding_may_stand_right_left_or_within(form, causal):
    rng = np.random.default_rng(0)
    state, log_precision = normal(rng, 1, 3, D), normal(rng, 1, 3, D)
    times = np.array([[5, 9, 700]], "int32")
    layer = built(form=form, causal=causal)
    call = compiled(layer, layer)
    expected = arrays(call(state, log_precision, timestamps=times))
    for real in ([0, 1, 2], [2, 3, 4], [1, 2, 3], [0, 2, 4]):
        # What stands at padding must not matter.
        padded = np.full((1, 5, D), 50.0, "float32")
        its_log_precision = np.full((1, 5, D), 9.0, "float32")
        its_times = np.full((1, 5), 10**6, "int32")
        padded[:, real], its_log_precision[:, real] = state, log_precision
        its_times[:, real] = times
        mask = np.zeros((1, 5), bool)
        mask[:, real] = True
        outputs = arrays(
            call(padded, its_log_precision, its_times, padding_mask=mask)
        )
        for x, y in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(x[:, real], y, atol=1e-5)


@each_form
def test_scaling_the_stream_leaves_the_observation_as_it_was(form):
    state, log_precision = inputs()
    layer = built(form=form, epsilon=1e-12)
    innovation, observed = arrays(layer.attention(state, log_precision))
    scaled = arrays(
        layer.attention(
            state * np.float32(30.0),
            log_precision - np.float32(2 * np.log(30.0)),
        )
    )
    np.testing.assert_allclose(scaled[0], innovation, atol=5e-5)
    np.testing.assert_allclose(scaled[1], observed, atol=2e-4)


@each_form
def test_a_step_gains_precision_in_update_and_loses_it_to_noise(form):
    state, log_precision = inputs()
    previous = np.inf
    for noise in (None, -6.0, -2.0, 1.0):
        layer = built(form=form, initial_log_process_noise=noise)
        if noise is None:
            current = numpy(layer(state, log_precision)[1])
            assert np.all(current >= log_precision)
        else:
            layer.log_process_noise.assign(np.full(D, noise))
            current = numpy(layer(state, log_precision)[1])
        assert np.all(current < previous)
        previous = current


def test_timestamps_count():
    state, log_precision = inputs()
    layer = built()
    plain, timed, shifted = (
        numpy(layer(state, log_precision, times)[0])
        for times in (None, TIMES, TIMES + 1_600_000_000)
    )
    np.testing.assert_array_equal(timed, shifted)
    assert np.max(np.abs(timed - plain)) > 1e-2
    untimed = BFTHSTULayer(2, T)
    untimed(state, log_precision)
    with pytest.raises(ValueError, match="built without.*Received: timestamps"):
        untimed(state, log_precision, TIMES)
