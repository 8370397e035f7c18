"""Frequencies of the rotary position embedding."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# Entries that each kind of scaling needs besides its type.
SCALINGS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def rotary_frequencies(
    head_dim: int,
    theta: float = 10000.0,
    scaling: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Angles, in radians, by which one position turns each pair of channels.

    `theta ** (-2 i / C)` for pair `i` (Su et al. 2021). Linear scaling divides
    all by `factor`. The scaling of Llama 3 divides those of wavelengths above
    `original_max_position_embeddings / low_freq_factor`, keeps those below
    `.../ high_freq_factor`, and interpolates between.

    Args:
        head_dim: Channels of a head `C`, even.
        theta: Base of the frequencies.
        scaling: `None`, or a mapping with `"type"`, `"linear"` or `"llama3"`,
            and the numbers named above.

    Returns:
        float32 array `(C / 2,)`.

    Raises:
        ValueError: If an argument is outside its domain.
    """
    if head_dim < 2 or head_dim % 2:
        raise ValueError(
            "`head_dim` must be even to rotate pairs of channels. "
            f"Received: head_dim={head_dim}"
        )
    if not theta > 0:
        raise ValueError(f"`theta` must be positive. Received: theta={theta}")
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / head_dim
    frequencies = (1.0 / np.float32(theta) ** exponents).astype(np.float32)
    if scaling is None:
        return frequencies
    _check_scaling(scaling)
    factor = scaling["factor"]
    if scaling["type"] == "linear":
        return frequencies / np.float32(factor)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = (
        scaling["original_max_position_embeddings"]
        * frequencies
        / (2.0 * math.pi)
    )
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    scaled = (1.0 - kept) * frequencies / factor + kept * frequencies
    return scaled.astype(np.float32)


def _check_scaling(scaling: Mapping[str, Any]) -> None:
    kind = scaling.get("type")
    if kind not in SCALINGS:
        raise ValueError(
            f"`scaling` must have a type of {tuple(SCALINGS)}. "
            f"Received: scaling={dict(scaling)}"
        )
    for name in SCALINGS[kind]:
        value = scaling.get(name)
        if not isinstance(value, (int, float)) or not value > 0:
            raise ValueError(
                f"`scaling` of type {kind!r} needs a positive {name!r}. "
                f"Received: scaling={dict(scaling)}"
            )
    if (
        kind == "llama3"
        and not scaling["low_freq_factor"] < scaling["high_freq_factor"]
    ):
        raise ValueError(
            "`low_freq_factor` must be below `high_freq_factor`. "
            f"Received: scaling={dict(scaling)}"
        )
