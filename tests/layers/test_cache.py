"""Layers that read a cache give what they give without one."""

import numpy as np
import pytest
from keras import ops

from keras_bft.layers import BFTLayer
from keras_bft.layers import GatedAttention
from keras_bft.layers import RotaryEmbedding
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

# The shape of other tests, and chunks of few sizes: JAX compiles for each.
B, T, D, H = 2, 4, 8, 4
OPTIONS = [
    {"strength": 0.0},
    {"form": "full"},
    {"precision": "token", "variance": "head"},
    {"key_precision": "per_head", "num_key_value_heads": 2},
    {"carry_units": False, "strength": 0.6},
    {"kriging_weights": False},
    {"jacobian": None},
    {"bayesian": False},
    {"bayesian": False, "gated_attention": True},
]


def built(**options):
    layer = BFTLayer(H, 12, gated=True, normalization="rms", **options)
    layer.build((B, T, D), (B, T, D))
    randomize(layer)
    return layer


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("at_hand", [False, True])
def test_step_by_step_equals_all_at_once(options, at_hand):
    rng = np.random.default_rng(0)
    layer = built(**options)
    width = 1 if options.get("precision") == "token" else D
    inputs = [normal(rng, B, T, D)]
    if options.get("bayesian", True):
        inputs.append(normal(rng, B, T, width))
    rotation = RotaryEmbedding(D // H)(np.tile(np.arange(T), (B, 1)))
    causal = np.tril(np.ones((T, T), bool))[None].repeat(B, 0)
    expected = arrays(layer(*inputs, attention_mask=causal, rotation=rotation))
    statistics = layer.weight_statistics() if at_hand else None
    # Two slots are left over: nothing may depend on what is in them.
    cache = {
        name: value + 3.0 for name, value in layer.make_cache(B, T + 2).items()
    }
    parts = []
    for start, stop in ((0, 1), (1, 3), (3, 4)):
        visible = np.zeros((B, stop - start, T + 2), bool)
        visible[:, :, :T] = causal[:, start:stop]
        *outputs, cache = layer(
            *(x[:, start:stop] for x in inputs),
            attention_mask=visible,
            rotation=rotation[:, start:stop],
            cache=cache,
            cache_index=start,
            weight_statistics=statistics,
        )
        parts.append(arrays(outputs))
    for want, *got in zip(expected, *parts, strict=True):
        np.testing.assert_allclose(np.concatenate(got, 1), want, atol=1e-5)


def test_the_cache_holds_what_was_seen():
    rng = np.random.default_rng(1)
    layer = built(num_key_value_heads=2)
    cache = layer.make_cache(B, 4)
    assert {name: tuple(value.shape) for name, value in cache.items()} == {
        "key": (B, 4, 2, 2),
        "value": (B, 4, 2, 2),
        "log_precision": (B, 4),
        "value_log_precision": (B, 4, 2),
    }
    state, log_precision = normal(rng, B, 1, D), normal(rng, B, 1, D)
    visible = np.zeros((B, 1, 4), bool)
    visible[:, :, 2] = True
    _, _, cache = layer(
        state,
        log_precision,
        attention_mask=visible,
        cache=cache,
        cache_index=2,
    )
    mean = np.log(np.exp(log_precision).mean(-1))[:, 0]
    held = numpy(cache["log_precision"])
    np.testing.assert_allclose(held[:, 2], mean, atol=1e-5)
    np.testing.assert_array_equal(held[:, [0, 1, 3]], 0.0)


def test_gated_attention_reads_a_cache():
    rng = np.random.default_rng(2)
    layer = GatedAttention(H, causal=True)
    layer.build((B, T, D))
    randomize(layer)
    state = normal(rng, B, T, D)
    expected = numpy(layer(state))
    step = GatedAttention.from_config(layer.get_config() | {"causal": False})
    step.build((B, T, D))
    step.set_weights(layer.get_weights())
    cache = step.make_cache(B, T)
    for t in range(T):
        visible = np.arange(T)[None, None] <= np.full((B, 1, 1), t)
        output, cache = step(
            state[:, t : t + 1],
            attention_mask=visible,
            cache=cache,
            cache_index=ops.convert_to_tensor(t),
        )
        np.testing.assert_allclose(
            numpy(output)[:, 0], expected[:, t], atol=1e-5
        )
