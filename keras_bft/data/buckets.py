"""Length buckets: a few padded lengths instead of one for all sequences."""

from collections.abc import Callable

import numpy as np


def choose_bucket_lengths(
    lengths: np.ndarray,
    batch_size: int | Callable[[np.ndarray], np.ndarray],
    max_buckets: int = 4,
) -> list[int]:
    """Chooses the padded lengths that leave the least to compute.

    The cost counted is the number of positions of all batches of one epoch,
    padding included; a bucket's last batch is filled up to `batch_size`. The
    best choice is found by dynamic programming over the distinct lengths.

    Args:
        lengths: Length of each sequence, shape `(N,)`, at least one.
        batch_size: Number of rows of every batch, or a function that gives it
            for each of an array of padded lengths.
        max_buckets: Largest number of buckets.

    Returns:
        Padded lengths, rising; the last is the longest length.
    """
    sizes, counts = np.unique(lengths, return_counts=True)
    shorter = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: one bucket for the sizes i..j, padded to sizes[j].
    members = shorter[None, 1:] - shorter[:-1, None]
    rows = batch_size(sizes) if callable(batch_size) else batch_size
    cost = -(-members // rows) * rows * sizes[None, :]
    cost = np.where(members > 0, cost.astype(np.float64), np.inf)

    # best[j]: least cost of the sizes up to j with the buckets used so far.
    best = cost[0]
    first_of_last = [np.zeros(len(sizes), dtype=np.int64)]
    for _ in range(1, max_buckets):
        before = np.concatenate([[0.0], best[:-1]])
        total = before[:, None] + cost
        start = np.argmin(total, axis=0)
        first_of_last.append(start)
        best = total[start, np.arange(len(sizes))]

    chosen = []
    end = len(sizes) - 1
    for start in reversed(first_of_last):
        if end < 0:
            break
        chosen.append(int(sizes[end]))
        end = int(start[end]) - 1
    return chosen[::-1]
