"""What the properties are tried on.

Shapes and options are drawn from short lists, since JAX compiles for each, and
numbers by a seed.
"""

import math
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.kriging_cases import make_mask

# Of precisions from 1e-12 to 1e12.
LARGEST = math.log(1e12)

# Precisions about one, over all the range, at its ends, and all the same.
PRECISIONS = ("moderate", "wide", "ends", "uniform")

# Scale and offset: ordinary values, far from zero, all the same, and zeros.
VALUES = ((1.0, 0.0), (1.0, 1e3), (1e-3, -30.0), (0.0, 7.0), (0.0, 0.0))

MASKS = (
    "none",
    "causal",
    "left",
    "right",
    "single",
    "holes",
    "blind",
    "nobody",
)

seeds = st.integers(0, 2**31 - 1)
strengths = st.sampled_from((0.0, 1.0)) | st.floats(0.0, 1.0, width=32)
precisions = st.sampled_from(PRECISIONS)
values = st.sampled_from(VALUES)


class Numbers(NamedTuple):
    """What the arrays of a case are made from.

    Attributes:
        seed: Of the random numbers.
        precision: One of `PRECISIONS`.
        value: One of `VALUES`.
        mask: One of `MASKS`.
        strength: Filter strength.
    """

    seed: int
    precision: str
    value: tuple[float, float]
    mask: str
    strength: float

    def rng(self, stream: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])

    def log_precision(
        self, rng: np.random.Generator, *shape: int
    ) -> np.ndarray:
        """Log-precisions, float32."""
        if self.precision == "moderate":
            return log_precisions(rng, shape)
        if self.precision == "wide":
            drawn = rng.uniform(-LARGEST, LARGEST, shape)
        elif self.precision == "ends":
            drawn = rng.choice([-LARGEST, LARGEST], shape)
        else:
            drawn = np.full(shape, rng.uniform(-LARGEST, LARGEST))
        return drawn.astype("float32")

    def values(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Values of some scale and offset, float32."""
        scale, offset = self.value
        return np.float32(scale) * normals(rng, *shape) + np.float32(offset)

    def visible(self, batch: int, queries: int, keys: int) -> np.ndarray:
        """Which keys each query sees, `(B, T, S)` bool."""
        shape = (batch, queries, keys)
        mask = make_mask(self.mask, self.rng(2), *shape)
        return np.broadcast_to(True if mask is None else mask, shape).copy()


numbers = st.builds(
    Numbers, seeds, precisions, values, st.sampled_from(MASKS), strengths
)
moderate = st.builds(
    Numbers,
    seeds,
    st.just("moderate"),
    st.just((1.0, 0.0)),
    st.sampled_from(MASKS),
    strengths,
)
