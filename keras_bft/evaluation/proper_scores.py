"""Scores that the true probability makes best: Brier and log likelihood."""

from typing import Any

import numpy as np

from keras_bft.evaluation._confidence_arrays import check_confidences


def brier_score(confidence: Any, hits: Any) -> float:
    """Mean squared difference between confidence and hit.

    Args:
        confidence: `(n,)`, the stated probability of a hit.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.

    Returns:
        From 0, which is best, to 1.

    Raises:
        ValueError: If an argument is empty, its shape wrong, or a value none
            of these.

    References:
        Brier, 1950, Verification of forecasts expressed in terms of
        probability.

    Example:

    >>> keras_bft.evaluation.brier_score([0.5, 0.25], [True, False])
    0.15625
    """
    confidence, hits = check_confidences(confidence, hits)
    return float(np.mean(np.square(confidence - hits)))


def negative_log_likelihood(confidence: Any, hits: Any) -> float:
    """Mean of minus the log of the probability given to what came.

    Args:
        confidence: `(n,)`, the stated probability of a hit.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.

    Returns:
        In nats, 0 at best. Infinite where what came had been given a
        probability of zero: nothing is clipped.

    Raises:
        ValueError: If an argument is empty, its shape wrong, or a value none
            of these.

    Example:

    >>> nll = keras_bft.evaluation.negative_log_likelihood(
    ...     [0.5, 0.75], [True, False])
    >>> round(nll, 4)
    1.0397
    """
    confidence, hits = check_confidences(confidence, hits)
    # `log1p` keeps what is lost in one minus a tiny confidence.
    with np.errstate(divide="ignore"):
        logs = np.where(hits > 0, np.log(confidence), np.log1p(-confidence))
    return float(0.0 - logs.mean())
