"""Diagonal Jacobians of norms and feed-forward networks."""

import functools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_bft.ops import feed_forward_jacobian
from keras_bft.ops import gated_feed_forward_jacobian
from keras_bft.ops import layer_norm_jacobian
from keras_bft.ops import mean_feed_forward_jacobian
from keras_bft.ops import mean_gated_feed_forward_jacobian
from keras_bft.ops import rms_norm_jacobian
from tests.ops.arrays import normals
from tests.properties.programs import Program
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import NIGHTLY
from tests.properties.settings import cases
from tests.properties.strategies import numbers

EPSILON = 1e-6
ACTIVATIONS = ["gelu", "silu", "relu"]
if NIGHTLY:
    ACTIVATIONS += ["tanh", "elu", "selu", "mish", "softplus", "leaky_relu"]
# Batch, length, width and hidden width.
SIZES = [(1, 1, 1, 1), (2, 3, 4, 5)]


@functools.cache
def norms(dtype: str) -> Program:
    """Jacobians of both norms."""

    def run(state: Any, gamma: Any) -> Any:
        return (
            layer_norm_jacobian(state, gamma, EPSILON),
            rms_norm_jacobian(state, gamma, EPSILON),
        )

    return Program(run, ("state", "gamma"), dtypes={"state": dtype})


@cases(10)
@given(
    st.sampled_from(SIZES),
    st.sampled_from(("float32", "float16", "bfloat16")),
    numbers,
)
def test_norms(sizes, dtype, drawn):
    batch, length, width, _ = sizes
    rng = drawn.rng()
    state = drawn.values(rng, batch, length, width)
    gamma = normals(rng, width)
    run = norms(dtype)(state=state, gamma=gamma)
    assert_finite(run)
    for jacobian in run[0]:
        # From 0 to gamma over the smallest spread.
        ratio = jacobian * EPSILON**0.5 / gamma
        assert np.all((ratio > -1e-3) & (ratio < 1.001))
    if drawn.value[0] == 1 and width > 1 and dtype == "float32":
        halved, _ = norms(dtype)(state=2 * state, gamma=gamma)
        assert_close(halved, [x / 2 for x in run[0]], 1e-4)


@functools.cache
def networks(activation: str) -> Program:
    """Jacobians of a plain and a gated network, whole and their means."""

    def run(gate: Any, up: Any, first: Any, second: Any, down: Any) -> Any:
        return (
            feed_forward_jacobian(gate, first, down, activation),
            mean_feed_forward_jacobian(gate, first, down, activation),
            gated_feed_forward_jacobian(
                gate, up, first, second, down, activation
            ),
            mean_gated_feed_forward_jacobian(
                gate, up, first, second, down, activation
            ),
        )

    return Program(run, ("gate", "up", "first", "second", "down"))


@cases(10)
@given(
    st.sampled_from(SIZES),
    st.sampled_from(ACTIVATIONS),
    numbers,
    st.sampled_from((1.0, 1e3)),
)
def test_networks(sizes, activation, drawn, scale):
    batch, length, width, hidden = sizes
    rng = drawn.rng()
    arrays = {
        "gate": np.float32(scale) * drawn.values(rng, batch, length, hidden),
        "up": normals(rng, batch, length, hidden),
        "first": normals(rng, width, hidden),
        "second": normals(rng, width, hidden),
        "down": normals(rng, hidden, width),
    }
    run = networks(activation)(**arrays)
    assert_finite(run)
    (plain, its_mean, gated, gated_mean), _ = run
    assert_close(
        [its_mean, gated_mean],
        [x.mean(-1, keepdims=True) for x in (plain, gated)],
        1e-5,
    )
    # Twice the output kernel, twice the Jacobian; a sum over hidden units.
    order = drawn.rng(1).permutation(hidden)
    shuffled = {
        "gate": arrays["gate"][..., order],
        "up": arrays["up"][..., order],
        "first": arrays["first"][:, order],
        "second": arrays["second"][:, order],
        "down": 2 * arrays["down"][order],
    }
    doubled, _ = networks(activation)(**shuffled)
    assert_close(doubled, [2 * x for x in run[0]], 1e-4)
