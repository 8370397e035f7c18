"""Scores of a catalogue, and its best items, a part of it at a time."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_bft.models._top_k import merge_top_k
from keras_bft.models._top_k import top_k
from keras_bft.typing import Tensor

# Items, and scores of all rows together (64 MiB), that are looked at at once.
_MAX_ITEMS = 2**17
_MAX_SCORES = 2**24
# Of `__dlpack_device__`.
_CPU = 1


def host_array(x: Tensor) -> np.ndarray:
    """A tensor as a NumPy array, not copied where it is in host memory.

    To copy a table of a million items takes longer than to score it.
    """
    x = ops.stop_gradient(ops.convert_to_tensor(x))
    try:
        shared = x.__dlpack_device__()[0] == _CPU
    except (AttributeError, BufferError):
        # What is spread over devices has no one memory.
        shared = False
    dtype = keras.backend.standardize_dtype(x.dtype)
    if shared and dtype in ("float32", "float64"):
        return np.from_dlpack(x)
    return ops.convert_to_numpy(x)


def score_items(states: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Scores of every item, minus infinity for padding.

    Args:
        states: `(n, D)` float32.
        table: `(num_items + 1, D)`.

    Returns:
        `(n, num_items + 1)` float32.
    """
    scores = states @ table.astype("float32", copy=False).T
    scores[:, 0] = -np.inf
    return scores


def best_items(
    states: np.ndarray,
    table: np.ndarray,
    k: int,
    histories: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` items with the highest scores, equal scores in order of ids.

    Never more than `_MAX_SCORES` scores are held.

    Args:
        states: `(n, D)` float32.
        table: `(num_items + 1, D)`, padding first.
        k: Number of items.
        histories: Items of each row that are left out.

    Returns:
        Ids, int64, and scores, float32, both `(n, k)`, best first, then id 0
        with minus infinity.
    """
    ids = np.zeros((len(states), k), "int64")
    best = np.full((len(states), k), -np.inf, "float32")
    if not len(states):
        return ids, best
    seen_items = np.concatenate([[0], *(histories or [])]).astype("int64")
    seen_rows = np.repeat(
        np.arange(-1, len(histories or [])),
        [1, *(len(history) for history in histories or [])],
    )
    order = np.argsort(seen_items, kind="stable")
    seen_items, seen_rows = seen_items[order], seen_rows[order]
    width = max(1, min(_MAX_ITEMS, _MAX_SCORES // len(states)))
    for start in range(1, len(table), width):
        part = table[start : start + width].astype("float32", copy=False)
        scores = states @ part.T
        first, last = np.searchsorted(seen_items, [start, start + len(part)])
        scores[seen_rows[first:last], seen_items[first:last] - start] = -np.inf
        columns, values = top_k(scores, min(k, len(part)))
        # Minus infinity stays with id 0, which comes before equal scores.
        ids, best = merge_top_k(ids, best, columns + start, values)
    return ids, best
