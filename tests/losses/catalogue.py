"""A small catalogue with states and targets, and float64 helpers."""

import numpy as np

NUM_ITEMS = 11


def catalogue(
    seed: int = 0, num_items: int = NUM_ITEMS, dim: int = 6
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns targets (2, 5) with padding, states and item embeddings."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, num_items + 1, size=(2, 5)).astype("int32")
    targets[1, 3:] = 0
    states = rng.normal(size=(2, 5, dim)).astype("float32")
    item_embeddings = rng.normal(size=(num_items + 1, dim)).astype("float32")
    return targets, states, item_embeddings


def real_positions(
    targets: np.ndarray, states: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions with a target, states in float64."""
    is_real = targets != 0
    return targets[is_real], states[is_real].astype("float64")


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.log1p(np.exp(-x))
