"""Row arithmetic behind `Interactions`: codes, repeats and the k-core."""

import numpy as np


def popularity_codes(item_codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes items from 1 by falling count, ties by first appearance.

    Args:
        item_codes: Any integer code of each row, shape `(N,)`.

    Returns:
        Tuple of the new codes, shape `(N,)`, and the old code of each new one,
        shape `(V,)`: new code `c` was `old[c - 1]`.
    """
    items, first, inverse, counts = np.unique(
        item_codes, return_index=True, return_inverse=True, return_counts=True
    )
    by_popularity = np.lexsort((first, -counts))
    code = np.empty(len(items), dtype=np.int64)
    code[by_popularity] = np.arange(1, len(items) + 1)
    return code[inverse], items[by_popularity]


def repeated_rows(
    user_codes: np.ndarray, item_codes: np.ndarray, timestamps: np.ndarray
) -> np.ndarray:
    """Marks rows that repeat user, item and time of an earlier row.

    Args:
        user_codes: Shape `(N,)`.
        item_codes: Shape `(N,)`.
        timestamps: Shape `(N,)`.

    Returns:
        Boolean mask of shape `(N,)`; the first of equal rows is not marked.
    """
    order = np.lexsort((timestamps, item_codes, user_codes))
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for column in (user_codes, item_codes, timestamps):
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(order), dtype=bool)
    repeated[order[1:]] = same
    return repeated


def k_core_rows(
    user_codes: np.ndarray, item_codes: np.ndarray, k: int
) -> np.ndarray:
    """Marks the rows of the `k`-core.

    Args:
        user_codes: Shape `(N,)`, from 0.
        item_codes: Shape `(N,)`, from 0.
        k: Least number of rows of every user and every item.

    Returns:
        Boolean mask of shape `(N,)`.
    """
    keep = np.ones(len(user_codes), dtype=bool)
    while True:
        kept = keep.copy()
        for codes in (user_codes, item_codes):
            kept &= (
                np.bincount(codes[keep], minlength=1 + codes.max(initial=0))[
                    codes
                ]
                >= k
            )
        if np.array_equal(kept, keep):
            return keep
        keep = kept
