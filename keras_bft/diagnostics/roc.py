"""How well a score tells corrupted tokens from others."""

from typing import Any
from typing import NamedTuple

import numpy as np


class RocCurve(NamedTuple):
    """Receiver operating characteristic of a score.

    Attributes:
        false_positive_rate: `(N,)`, rising from 0 to 1.
        true_positive_rate: `(N,)`, rising from 0 to 1.
        auc: Area under the curve: the probability that a positive has a
            higher score than a negative, ties counted half.
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    auc: float


def roc_curve(scores: Any, positive: Any, mask: Any = None) -> RocCurve:
    """The ROC curve of a score.

    To see whether precision tells wrong tokens, give minus the log-precision
    of the tokens and where they were corrupted.

    Args:
        scores: Scores, of any shape: higher for more likely positive.
        positive: True where the event is, of the same shape.
        mask: True where there is something to score. Defaults to all.

    Returns:
        The curve, with a point for every distinct score.

    Raises:
        ValueError: If shapes differ, a score is NaN, or there are no
            positives or no negatives.

    Example:

    >>> curve = keras_bft.diagnostics.roc_curve(
    ...     [0.9, 0.4, 0.6, 0.1], [True, True, False, False])
    >>> curve.auc
    0.75
    """
    scores, positive = np.asarray(scores, "float64"), np.asarray(positive, bool)
    mask = np.ones(scores.shape, bool) if mask is None else np.asarray(mask)
    if not scores.shape == positive.shape == mask.shape:
        raise ValueError(
            "`scores`, `positive` and `mask` must have one shape. Received: "
            f"{scores.shape}, {positive.shape} and {mask.shape}"
        )
    chosen = mask.astype(bool)
    scores, positive = scores[chosen], positive[chosen]
    if np.isnan(scores).any():
        raise ValueError(
            "`scores` must be numbers where `mask` is true. Received: "
            f"{np.isnan(scores).sum()} NaN"
        )
    if positive.all() or not positive.any():
        raise ValueError(
            "There must be positives and negatives. Received: "
            f"{positive.sum()} positives of {len(positive)}"
        )
    values, place = np.unique(-scores, return_inverse=True)
    true = np.bincount(place, positive, len(values)).cumsum()
    false = np.bincount(place, ~positive, len(values)).cumsum()
    true = np.concatenate([[0.0], true / true[-1]])
    false = np.concatenate([[0.0], false / false[-1]])
    return RocCurve(false, true, float(np.trapezoid(true, false)))
