"""Weights of the tokens of rows, as they come from users."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_row_weights(
    sample_weights: Sequence[Any] | None,
    rows: Sequence[np.ndarray],
    article: str,
    noun: str,
) -> list[np.ndarray]:
    """Returns a float32 weight for each token of each row, ones for `None`.

    Args:
        sample_weights: For each row `(n,)` weights.
        rows: The rows, `(n,)` each.
        article: That of the noun.
        noun: What errors call a row.

    Raises:
        ValueError: If numbers differ, or a weight is negative or not finite.
    """
    if sample_weights is None:
        return [np.ones(len(row), "float32") for row in rows]
    if len(sample_weights) != len(rows):
        raise ValueError(
            f"`sample_weights` must have an entry for each {noun}. Received: "
            f"{len(rows)} {noun}s and {len(sample_weights)} entries"
        )
    checked = []
    for index, row in enumerate(rows):
        weights = np.asarray(sample_weights[index], "float32")
        if weights.shape != row.shape or not (
            np.isfinite(weights).all() and (weights >= 0).all()
        ):
            raise ValueError(
                f"The weights of {article} {noun} must be as many as its "
                "tokens and finite, from 0 on. Received: "
                f"sample_weights[{index}]={sample_weights[index]!r:.200} "
                f"for {len(row)} tokens"
            )
        checked.append(weights)
    return checked
