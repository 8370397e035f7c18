"""An HSTU layer that reads a cache gives what it gives without one."""

import numpy as np
import pytest
from keras import ops

from keras_bft.layers import BFTHSTULayer
from keras_bft.layers.relative_bias import RelativeBias
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

B, T, D, H, S = 2, 6, 8, 2, 8
TIMES = np.array([[0, 5, 60, 90, 9000, 9001], [7, 7, 8, 50, 51, 800]], "int32")
CAUSAL = np.tril(np.ones((T, T), bool))[None].repeat(B, 0)
OPTIONS = [
    {"form": "full", "strength": 0.6},
    {"precision": "token", "carry_units": False, "num_time_buckets": 0},
    {"bayesian": False},
]


def built(max_length=T, **options):
    layer = BFTHSTULayer(H, max_length, **options)
    timed = options.get("num_time_buckets", 1) > 0
    layer.build((B, T, D), (B, T, D), *[(B, T)] * timed)
    randomize(layer)
    return layer


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_step_by_step_equals_all_at_once(options):
    rng = np.random.default_rng(0)
    layer = built(**options)
    width = 1 if options.get("precision") == "token" else D
    inputs = [normal(rng, B, T, D)]
    if options.get("bayesian", True):
        inputs.append(normal(rng, B, T, width))
    expected = arrays(layer(*inputs, timestamps=TIMES))
    # Nothing may depend on where keys are held, or on the slots left over.
    slots = np.array([4, 5, 6, 1, 2, 3])
    cache = {
        name: value + ops.cast(3, value.dtype)
        for name, value in layer.make_cache(B, S).items()
    }
    parts = []
    for new in (slice(0, 3), slice(3, 6)):
        visible = np.zeros((B, 3, S), bool)
        visible[:, :, slots] = CAUSAL[:, new]
        *outputs, cache = layer(
            *(x[:, new] for x in inputs),
            timestamps=TIMES[:, new],
            attention_mask=visible,
            position=np.tile(np.arange(T)[new], (B, 1)),
            cache=cache,
            cache_index=int(slots[new.start]),
        )
        parts.append(arrays(outputs))
    for want, *got in zip(expected, *parts, strict=True):
        np.testing.assert_allclose(np.concatenate(got, 1), want, atol=1e-5)


def test_a_state_alone_reads_a_cache():
    rng = np.random.default_rng(2)
    state = normal(rng, B, T, D)
    layer = built(num_time_buckets=0)
    expected = numpy(layer(state))
    output, cache = layer(
        state,
        attention_mask=CAUSAL,
        cache=layer.make_cache(B, T),
        cache_index=ops.convert_to_tensor(0),
    )
    np.testing.assert_allclose(numpy(output), expected, atol=1e-5)
    assert numpy(cache["position"]).tolist() == [list(range(T))] * B


def test_the_cache_holds_what_was_seen():
    layer = built(form="full")
    cache = layer.make_cache(B, T + 1)
    assert {name: tuple(value.shape) for name, value in cache.items()} == {
        "key": (B, T + 1, H, D // H),
        "value": (B, T + 1, H, D // H),
        "position": (B, T + 1),
        "timestamps": (B, T + 1),
        "log_precision": (B, T + 1),
        "value_log_precision": (B, T + 1, H),
    }
    plain = built(bayesian=False, num_time_buckets=0)
    assert set(plain.make_cache(B, T)) == {"key", "value", "position"}
    rng = np.random.default_rng(3)
    log_precision = normal(rng, B, T, D)
    *_, cache = layer(
        normal(rng, B, T, D),
        log_precision,
        timestamps=TIMES,
        attention_mask=np.ones((B, T, T + 1), bool),
        cache=cache,
        cache_index=1,
    )
    held = {name: numpy(value) for name, value in cache.items()}
    mean = np.log(np.exp(log_precision).mean(-1))
    np.testing.assert_allclose(held["log_precision"][:, 1:], mean, atol=1e-5)
    np.testing.assert_array_equal(held["timestamps"][:, 1:], TIMES)
    assert held["position"][:, 1:].tolist() == [list(range(1, T + 1))] * B
    for value in held.values():
        np.testing.assert_array_equal(value[:, 0], 0.0)


def test_positions_can_be_told_without_a_cache():
    rng = np.random.default_rng(4)
    layer = built(max_length=50)
    state, log_precision = normal(rng, B, T, D), normal(rng, B, T, D)
    usual, moved, spread = (
        numpy(layer(state, log_precision, TIMES, position=position)[0])
        for position in (
            None,
            np.tile(np.arange(9, 9 + T), (B, 1)),
            np.tile(np.arange(T) * 7, (B, 1)),
        )
    )
    np.testing.assert_allclose(usual, moved, atol=1e-6)
    assert np.max(np.abs(usual - spread)) > 1e-3


def test_the_bias_of_other_queries_is_rows_of_the_whole():
    layer = RelativeBias(H, T, 8)
    position = np.arange(T)[None].repeat(B, 0)
    layer.build((B, T), (B, T))
    whole = numpy(layer(position, TIMES))
    rows = layer(
        position[:, 3:5],
        TIMES[:, 3:5],
        key_position=position,
        key_timestamps=TIMES,
    )
    np.testing.assert_array_equal(numpy(rows), whole[:, :, 3:5])


@pytest.mark.parametrize(
    "given", [{"timestamps": TIMES}, {"attention_mask": CAUSAL}]
)
def test_a_cache_needs_a_mask_and_the_times_it_keeps(given):
    layer = built()
    state = np.zeros((B, T, D), "float32")
    with pytest.raises(ValueError, match="Received: .*=None"):
        layer(state, state, cache=layer.make_cache(B, T), **given)
