"""The observation's precision: its posterior, and its projection."""

import functools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_bft.ops import observation_log_precision
from keras_bft.ops import projected_log_precision
from keras_bft.ops import projected_observation_log_precision
from keras_bft.ops import squared_projection
from tests.ops.arrays import normals
from tests.properties.programs import Program
from tests.properties.programs import assert_close
from tests.properties.programs import assert_finite
from tests.properties.settings import cases
from tests.properties.strategies import numbers
from tests.reference import bft_reference as reference

# Batch, queries, heads, channels of a head (one if pooled), width.
SIZES = [(1, 1, 1, 1, 1), (2, 3, 2, 3, 4), (2, 4, 3, 1, 5)]
HEAD_DIM = 3
ARRAYS = ("variance", "size", "log_prior", "kernel")
sizes = st.sampled_from(SIZES)
# From 1e-12 to 1e12, and zero.
variances = st.sampled_from(("zero", "moderate", "wide"))


def make_arrays(sizes: Any, drawn: Any, kind: str) -> dict[str, Any]:
    """A residual variance, a sample size, a prior and a projection."""
    batch, queries, heads, channels, width = sizes
    rng = drawn.rng()
    shape = (batch, queries, heads)
    spread = {"zero": 0.0, "moderate": 1.0, "wide": 27.0}[kind]
    variance = np.exp(rng.uniform(-spread, spread, (*shape, channels)))
    alone = rng.random((*shape, 1)) < 0.3
    size = np.where(alone, 1.0, rng.uniform(1.0, 200.0, (*shape, 1)))
    variance = np.where(alone | (kind == "zero"), 0.0, variance)
    kernel = normals(rng, heads, max(channels, HEAD_DIM), width)
    kernel[..., rng.integers(width)] *= np.float32(drawn.value[0])
    if drawn.mask in ("blind", "nobody"):
        size[0] = 0.0
    return {
        "variance": variance.astype("float32"),
        "size": size.astype("float32"),
        "log_prior": drawn.log_precision(rng, *shape, 1),
        "kernel": kernel[:, : HEAD_DIM if channels == 1 else channels],
    }


@functools.cache
def program(sizes: Any) -> Program:
    """The posterior, its projection in two steps, and both at once."""

    def observe(variance: Any, size: Any, log_prior: Any, kernel: Any) -> Any:
        squared = squared_projection(kernel, pooled=sizes[3] == 1)
        log_precision = observation_log_precision(variance, size, log_prior)
        return (
            log_precision,
            projected_log_precision(log_precision, squared),
            projected_observation_log_precision(
                variance, size, log_prior, squared
            ),
        )

    return Program(observe, ARRAYS)


@cases(12)
@given(sizes, numbers, variances)
def test_finite_and_one_step_equals_two(sizes, drawn, kind):
    arrays = make_arrays(sizes, drawn, kind)
    run = program(sizes)(**arrays)
    assert_finite(run)
    _, projected, at_once = run[0]
    # What is projected onto nothing has a precision of a bound of its own.
    read = arrays["kernel"].any(axis=(0, 1))
    np.testing.assert_allclose(
        at_once[..., read], projected[..., read], rtol=1e-5, atol=1e-3
    )


@cases(8)
@given(sizes, numbers, variances)
def test_reference(sizes, drawn, kind):
    arrays = make_arrays(sizes, drawn, kind)
    (actual, *_), _ = program(sizes)(**arrays)
    seen = np.broadcast_to(arrays["size"] > 0, actual.shape)
    exact = {name: x.astype("float64") for name, x in arrays.items()}
    with np.errstate(all="ignore"):
        expected = np.log(
            reference.observation_precision(
                exact["variance"], exact["size"], np.exp(exact["log_prior"])
            )
        )
    np.testing.assert_allclose(actual[seen], expected[seen], atol=1e-4)
    alone = np.broadcast_to(arrays["size"] == 1, actual.shape)
    prior = np.broadcast_to(exact["log_prior"], actual.shape)
    np.testing.assert_allclose(actual[alone], prior[alone], atol=1e-5)


@cases(8)
@given(sizes, numbers, variances, st.floats(0.01, 10.0))
def test_what_raises_the_precision(sizes, drawn, kind, more):
    arrays = make_arrays(sizes, drawn, kind)
    factor = np.float32(np.exp(more))
    before, _ = program(sizes)(**arrays)
    for name, changed in (
        ("variance", arrays["variance"] / factor),
        ("log_prior", arrays["log_prior"] + np.float32(more)),
        ("size", arrays["size"] * factor),
    ):
        after, _ = program(sizes)(**arrays | {name: changed})
        for x, y in zip(after, before, strict=True):
            assert np.all(x >= y - 1e-3), name


@cases(6)
@given(sizes, numbers, variances, st.sampled_from((-8.0, 3.0)))
def test_units_of_the_values(sizes, drawn, kind, log_scale):
    arrays = make_arrays(sizes, drawn, kind)
    scale = np.float32(np.exp(log_scale))
    before, _ = program(sizes)(**arrays)
    after, _ = program(sizes)(
        **arrays
        | {
            "variance": scale**2 * arrays["variance"],
            "log_prior": arrays["log_prior"] - np.float32(2 * log_scale),
        }
    )
    seen = arrays["size"] > 0
    assert_close(
        [np.where(seen, after[0] + 2 * log_scale, after[0])], before[:1], 1e-5
    )
    # A value in other units, and a kernel in theirs: the stream's stay.
    after, _ = program(sizes)(
        **arrays
        | {
            "variance": scale**2 * arrays["variance"],
            "log_prior": arrays["log_prior"] - np.float32(2 * log_scale),
            "kernel": arrays["kernel"] / scale,
        }
    )
    read = arrays["kernel"].any(axis=(0, 1))
    everything = np.broadcast_to(seen.any(axis=2) & read, before[2].shape)
    for x, y in zip(after[1:], before[1:], strict=True):
        np.testing.assert_allclose(x[everything], y[everything], atol=1e-3)
