"""The best items of each row of scores."""

from numbers import Integral

import numpy as np


def check_k(k: int, num_items: int) -> None:
    """Raises a `ValueError` unless that many items can be recommended."""
    if not isinstance(k, Integral) or not 1 <= k <= num_items:
        raise ValueError(
            f"`k` must be an integer from 1 to `num_items`={num_items}. "
            f"Received: k={k!r}"
        )


def top_k(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` best columns of each row, equal scores in the order of columns.

    Args:
        scores: `(n, m)` with `m >= k`; minus infinity is never chosen.
        k: Number of columns to choose.

    Returns:
        Columns, int64, and scores, both `(n, k)`, best first. Where a row has
        fewer than `k` scores, the rest is column 0 and minus infinity.
    """
    columns = np.zeros((len(scores), k), "int64")
    best = np.full((len(scores), k), -np.inf, scores.dtype)
    last = scores.shape[1] - k
    thresholds = np.partition(scores, last, axis=1)[:, last]
    for row, threshold in enumerate(thresholds):
        # All that tie with the k-th take part, so that ids decide among them.
        candidates = np.flatnonzero(
            (scores[row] >= threshold) & (scores[row] > -np.inf)
        )
        order = np.argsort(-scores[row, candidates], kind="stable")[:k]
        chosen = candidates[order]
        columns[row, : len(chosen)] = chosen
        best[row, : len(chosen)] = scores[row, chosen]
    return columns, best


def merge_top_k(
    ids: np.ndarray,
    best: np.ndarray,
    more_ids: np.ndarray,
    more: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The best of two lists, of equal scores those of the first list first.

    Args:
        ids: `(n, k)` ids.
        best: `(n, k)` their scores, best first.
        more_ids: `(n, m)` ids, all above those in `ids`.
        more: `(n, m)` their scores, best first.

    Returns:
        Ids and scores, both `(n, k)`, best first.
    """
    scores = np.concatenate([best, more], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : ids.shape[1]]
    both = np.concatenate([ids, more_ids], axis=1)
    return (
        np.take_along_axis(both, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )
