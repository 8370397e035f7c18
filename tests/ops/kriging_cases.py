"""Random inputs of the observation, and what the reference makes of them."""

from dataclasses import dataclass
from dataclasses import replace

import numpy as np

from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.reference import bft_reference as reference


@dataclass(frozen=True)
class Case:
    """Sizes and options of one observation.

    Attributes:
        sizes: Batch, queries, keys, heads, key heads and channels.
        mask: Kind of mask, see `make_mask`.
        strength: Filter strength.
        token: Whether the keys have one precision for all channels.
        own_units: Whether the values have precisions of their own, per head.
        offset: Added to all values.
        scale: Logit scale.
    """

    sizes: tuple[int, int, int, int, int, int]
    mask: str
    strength: float = 1.0
    token: bool = False
    own_units: bool = False
    offset: float = 0.0
    scale: float | None = None

    def __str__(self) -> str:
        options = [name for name in ("token", "own_units") if self[name]]
        sizes = "x".join(str(size) for size in self.sizes)
        return "-".join((sizes, self.mask, f"s{self.strength}", *options))

    def __getitem__(self, name: str) -> object:
        return getattr(self, name)


CASES = [
    Case((1, 1, 1, 1, 1, 1), "none"),
    Case((1, 1, 1, 2, 2, 3), "causal", token=True),
    Case((2, 3, 3, 1, 1, 4), "none", 0.0),
    Case((2, 3, 3, 2, 1, 4), "causal", 0.3),
    Case((2, 4, 4, 2, 2, 2), "left", own_units=True),
    Case((3, 4, 4, 4, 2, 3), "right", own_units=True),
    Case((2, 5, 5, 2, 2, 4), "holes", token=True),
    Case((2, 5, 5, 3, 1, 2), "single"),
    Case((2, 5, 5, 2, 2, 3), "blind"),
    Case((1, 2, 6, 2, 2, 4), "none", own_units=True),
    Case((2, 3, 7, 4, 4, 2), "right", 0.3, token=True),
    Case((2, 1, 8, 2, 1, 5), "holes"),
    Case((1, 6, 2, 2, 2, 3), "holes", own_units=True),
    Case((2, 4, 6, 4, 2, 2), "causal", own_units=True, token=True),
    Case((2, 6, 6, 6, 3, 2), "left", 0.3, own_units=True),
    Case((1, 7, 7, 1, 1, 8), "causal", scale=0.7),
    Case((2, 5, 5, 4, 1, 3), "blind", own_units=True),
    Case((3, 3, 5, 2, 2, 1), "blind", 0.0, token=True),
    Case((2, 4, 4, 2, 2, 4), "causal", offset=1000.0),
    Case((2, 5, 5, 2, 1, 4), "left", offset=1000.0),
    Case((2, 4, 6, 2, 2, 3), "right", offset=-1000.0, own_units=True),
    Case((2, 6, 6, 2, 2, 3), "holes", 0.3, offset=1000.0, token=True),
    Case((1, 9, 9, 2, 2, 6), "single", own_units=True),
    Case((2, 3, 3, 2, 2, 3), "nobody"),
]


def make_mask(
    kind: str, rng: np.random.Generator, batch: int, queries: int, keys: int
) -> np.ndarray | None:
    """Returns a mask, `(B, T, S)` or `(B, 1, S)`, or `None` for "none"."""
    causal = np.tri(queries, keys, keys - queries, dtype=bool)[None]
    position = np.arange(keys)
    padding = rng.integers(0, keys, size=(batch, 1, 1))
    random = rng.random((batch, queries, keys)) < 0.6
    if kind == "none":
        return None
    if kind == "causal":
        return np.repeat(causal, batch, axis=0)
    if kind == "left":
        return causal & (position >= padding)
    if kind == "right":
        return position < keys - padding
    if kind == "single":
        chosen = rng.integers(0, keys, size=(batch, queries, 1))
        return position == chosen
    if kind == "holes":
        random[..., -1] |= ~random.any(axis=-1)
        return random
    if kind == "blind":
        random[:, 0] = False
        random[-1] = False
        return random
    if kind == "nobody":
        return np.zeros((batch, 1, keys), bool)
    raise ValueError(f"Unknown mask. Received: kind={kind!r}")


def make_inputs(case: Case, seed: int = 0) -> dict[str, object]:
    """Returns the arguments of `kriging_observation` but `variance`."""
    rng = np.random.default_rng(seed)
    batch, queries, keys, heads, key_heads, channels = case.sizes
    width = 1 if case.token else heads * channels
    value = normals(rng, batch, keys, key_heads, channels) + case.offset
    return {
        "query": normals(rng, batch, queries, heads, channels),
        "key": normals(rng, batch, keys, key_heads, channels),
        "value": value.astype("float32"),
        "key_log_precision": log_precisions(rng, (batch, keys, width)),
        "value_log_precision": (
            log_precisions(rng, (batch, keys, key_heads))
            if case.own_units
            else None
        ),
        "mask": make_mask(case.mask, rng, batch, queries, keys),
        "scale": case.scale,
        "strength": case.strength,
    }


def expected_observation(inputs: dict[str, object]) -> dict[str, np.ndarray]:
    """Returns what the reference observes, heads repeated to the queries'."""
    query = inputs["query"]
    groups = query.shape[2] // inputs["key"].shape[2]
    key, value = (
        np.repeat(np.asarray(inputs[name], "float64"), groups, axis=2)
        for name in ("key", "value")
    )
    visible = np.ones((len(query), query.shape[1], key.shape[1]), bool)
    if inputs["mask"] is not None:
        visible = visible & inputs["mask"]
    value_precision = None
    if inputs["value_log_precision"] is not None:
        value_precision = np.exp(
            np.asarray(inputs["value_log_precision"], "float64")
        )
        value_precision = np.repeat(value_precision, groups, axis=-1)
    return reference.kriging_observation(
        np.asarray(query, "float64"),
        key,
        value,
        np.exp(np.asarray(inputs["key_log_precision"], "float64")),
        visible,
        value_precision,
        inputs["scale"],
        inputs["strength"],
    )


def simple_inputs(mask: str = "causal", **options: object) -> dict:
    """Returns inputs of two rows of five keys, for tests of one property."""
    case = Case((2, 5, 5, 4, 2, 3), mask, own_units=True)
    return make_inputs(replace(case, **options), seed=1)
