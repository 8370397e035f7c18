"""Attention as kriging: what is compiled, and the arrays of a case."""

import functools
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from keras_bft.ops import kriging_observation
from keras_bft.ops import kriging_statistics
from keras_bft.ops import kriging_weights
from tests.ops.arrays import normals
from tests.properties.programs import Program
from tests.properties.settings import NIGHTLY
from tests.properties.strategies import Numbers

ops = keras.ops


class Form(NamedTuple):
    """What JAX compiles for.

    Attributes:
        sizes: Batch, queries, keys, heads, key heads and channels.
        dtype: Of queries, keys and values.
        variance: `"channel"` or `"head"`.
        differentiate: Whether the statistics have gradients.
        causal: Whether queries see earlier keys only, on top of the mask.
        per_head: Whether keys have a precision for each head.
        masked: Whether there is a mask.
    """

    sizes: tuple[int, int, int, int, int, int]
    dtype: str = "float32"
    variance: str = "channel"
    differentiate: bool = True
    causal: bool = False
    per_head: bool = False
    masked: bool = True


FORMS = [
    Form((1, 1, 1, 1, 1, 1)),
    Form((2, 5, 5, 2, 1, 3), causal=True, masked=False),
    Form((2, 5, 5, 2, 1, 3), "float16", per_head=True),
    Form((2, 5, 5, 2, 1, 3), "bfloat16", "head", False),
    Form((3, 3, 6, 2, 2, 1)),
]
if NIGHTLY:
    FORMS += [
        Form(sizes, dtype, variance, differentiate, causal, per_head, masked)
        for sizes in ((1, 5, 5, 1, 1, 1), (2, 6, 6, 4, 2, 2))
        for dtype in ("float32", "float16")
        for variance, differentiate in (("channel", True), ("head", False))
        for causal, per_head, masked in (
            (True, True, True),
            (False, False, False),
        )
    ]
    FORMS += [
        Form((2, 1, 4, 1, 1, 2), per_head=True),
        Form((1, 4, 1, 2, 2, 2), variance="head"),
    ]
EXACT = [form for form in FORMS if form.dtype == "float32"]
FLOATS = ("query", "key", "value")
STATISTICS = ("mean_log_precision", "value_log_precision", "strength")


def kriging_arrays(form: Form, numbers: Numbers) -> dict[str, Any]:
    """Arguments of the programs below."""
    batch, queries, keys, heads, key_heads, channels = form.sizes
    rng = numbers.rng()
    by_head = (key_heads,) if form.per_head else ()
    arrays = {
        "query": normals(rng, batch, queries, heads, channels),
        "key": normals(rng, batch, keys, key_heads, channels),
        "value": numbers.values(rng, batch, keys, key_heads, channels),
        "mean_log_precision": numbers.log_precision(rng, batch, keys, *by_head),
        "value_log_precision": numbers.log_precision(
            rng, batch, keys, key_heads
        ),
        "strength": np.float32(numbers.strength),
    }
    if form.masked:
        arrays["mask"] = numbers.visible(batch, queries, keys)
    return arrays


def sees(form: Form, arrays: dict[str, Any]) -> np.ndarray:
    """Which keys each query sees, `(B, T, S)` bool."""
    batch, queries, keys = form.sizes[:3]
    visible = arrays.get("mask", np.ones((batch, queries, keys), bool))
    return (
        visible & np.tri(queries, keys, dtype=bool)
        if form.causal
        else (visible)
    )


@functools.cache
def blockwise(form: Form) -> Program:
    """`kriging_observation`, two queries at a time."""
    return _program(
        functools.partial(
            kriging_observation,
            variance=form.variance,
            causal=form.causal,
            differentiate=form.differentiate,
            block=2,
        ),
        form,
    )


@functools.cache
def dense(form: Form) -> Program:
    """The same from weights that are held, and the weights before it."""

    def observe(
        query: Any,
        key: Any,
        value: Any,
        mean_log_precision: Any,
        value_log_precision: Any,
        strength: Any,
        mask: Any = None,
    ) -> Any:
        if form.causal:
            earlier = np.tri(form.sizes[1], dtype=bool)[None]
            mask = earlier if mask is None else ops.logical_and(mask, earlier)
        weights = kriging_weights(
            query, key, mean_log_precision, mask, strength=strength
        )
        observation = kriging_statistics(
            weights,
            value,
            value_log_precision,
            mask,
            form.variance,
            form.differentiate,
        )
        return (*observation, ops.stop_gradient(weights))

    return _program(observe, form)


def _program(function: Any, form: Form) -> Program:
    return Program(
        function,
        (*FLOATS, *STATISTICS),
        dtypes=dict.fromkeys(FLOATS, form.dtype),
    )
