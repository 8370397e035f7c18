"""Scores of a catalogue, and its best items, a part of it at a time."""

from collections.abc import Iterator
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


def item_logits(
    states: np.ndarray, items: np.ndarray, variances: np.ndarray | None
) -> np.ndarray:
    """Logits of items: inner products, or those of the mean field.

    ```
    z_i     = sum_d e_id x_d
    var_i   = sum_d e_id^2 v_d
    logit_i = z_i / sqrt(1 + pi / 8 var_i)
    ```

    The mean of a sigmoid of a normal logit is about that of `logit_i` (MacKay
    1992); SNGP takes it for each logit of a softmax. That the variance is that
    of the state's channels, taken as independent, is derived for this library.

    Args:
        states: `x`, `(n, D)` float32.
        items: Vectors of items, `(m, D)` float32.
        variances: `v`, of the states' channels, `(n, D)` float32; or `None`
            for the inner products.

    Returns:
        `(n, m)` float32.
    """
    logits = states @ items.T
    if variances is not None:
        spread = variances @ np.square(items).T
        spread *= np.float32(np.pi / 8)
        spread += 1
        logits /= np.sqrt(spread, out=spread)
    return logits


def score_items(
    states: np.ndarray, table: np.ndarray, variances: np.ndarray | None = None
) -> np.ndarray:
    """Scores of every item, minus infinity for padding.

    Args:
        states: `(n, D)` float32.
        table: `(num_items + 1, D)`.
        variances: As in `item_logits`.

    Returns:
        `(n, num_items + 1)` float32.
    """
    items = table.astype("float32", copy=False)
    scores = item_logits(states, items, variances)
    scores[:, 0] = -np.inf
    return scores


def score_parts(
    states: np.ndarray,
    table: np.ndarray,
    histories: Sequence[np.ndarray] | None,
    variances: np.ndarray | None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Scores of the items, without padding, a part of them at a time.

    Never more than `_MAX_SCORES` scores are held.

    Args:
        states: `(n, D)` float32, at least one.
        table: `(num_items + 1, D)`, padding first.
        histories: Items of each row that are left out: minus infinity.
        variances: As in `item_logits`.

    Yields:
        The id of a part's first item, and scores `(n, items of the part)`.
    """
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
        scores = item_logits(states, part, variances)
        first, last = np.searchsorted(seen_items, [start, start + len(part)])
        scores[seen_rows[first:last], seen_items[first:last] - start] = -np.inf
        yield start, scores


def best_items(
    states: np.ndarray,
    table: np.ndarray,
    k: int,
    histories: Sequence[np.ndarray] | None = None,
    variances: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` items with the highest scores, equal scores in order of ids.

    Args:
        states: `(n, D)` float32.
        table: `(num_items + 1, D)`, padding first.
        k: Number of items.
        histories: Items of each row that are left out.
        variances: As in `item_logits`.

    Returns:
        Ids, int64, and scores, float32, both `(n, k)`, best first, then id 0
        with minus infinity.
    """
    ids = np.zeros((len(states), k), "int64")
    best = np.full((len(states), k), -np.inf, "float32")
    if not len(states):
        return ids, best
    for start, scores in score_parts(states, table, histories, variances):
        columns, values = top_k(scores, min(k, scores.shape[1]))
        # Minus infinity stays with id 0, which comes before equal scores.
        ids, best = merge_top_k(ids, best, columns + start, values)
    return ids, best


def log_normalizer(
    states: np.ndarray,
    table: np.ndarray,
    histories: Sequence[np.ndarray] | None = None,
    variances: np.ndarray | None = None,
) -> np.ndarray:
    """Log of the sum of `exp(score)` over the items.

    Args:
        states: `(n, D)` float32, at least one.
        table: `(num_items + 1, D)`, padding first.
        histories: Items of each row that are left out.
        variances: As in `item_logits`.

    Returns:
        `(n,)` float64, minus infinity where no item is left.
    """
    largest = np.full(len(states), -np.inf)
    shift, total = np.zeros(len(states)), np.zeros(len(states))
    for _, scores in score_parts(states, table, histories, variances):
        peak = np.maximum(largest, scores.max(axis=1))
        shift = np.where(np.isfinite(peak), peak, 0.0)
        total *= np.exp(largest - shift)
        scores -= shift.astype("float32")[:, None]
        total += np.exp(scores, out=scores).sum(axis=1, dtype="float64")
        largest = peak
    with np.errstate(divide="ignore"):
        return shift + np.log(total)
