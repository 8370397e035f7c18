"""Errors that are left when the least confident answers are withheld."""

from typing import Any
from typing import NamedTuple

import numpy as np

from keras_bft.evaluation._confidence_arrays import check_confidences


class RiskCoverageCurve(NamedTuple):
    """Share of misses among the most confident, by how many are kept.

    Attributes:
        coverage: `(n,)`, `1 / n, 2 / n, ... 1`: the share that is kept.
        risk: `(n,)`, the share of misses among those.
        area: Mean of `risk`, the area under the curve (AURC).
        excess_area: `area` minus that of confidences which put every hit
            before every miss: 0 is best, whatever the hit rate.
    """

    coverage: np.ndarray
    risk: np.ndarray
    area: float
    excess_area: float


def risk_coverage(confidence: Any, hits: Any) -> RiskCoverageCurve:
    """The risk-coverage curve of a confidence.

    Answers of equal confidence may be kept in any order; the risk is its mean
    over all of these, so the order of the arguments never matters.

    Args:
        confidence: `(n,)` numbers, higher for surer. Only their order is read,
            so it may be any score, such as a log-precision.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.

    Returns:
        A `keras_bft.evaluation.RiskCoverageCurve`.

    Raises:
        ValueError: If an argument is empty, its shape wrong, or a value none
            of these.

    References:
        Geifman et al., 2019, Bias-reduced uncertainty estimation for deep
        neural classifiers (arXiv 1805.08206), the area and its excess.

    Example:

    >>> curve = keras_bft.evaluation.risk_coverage(
    ...     [0.9, 0.6, 0.6, 0.1], [True, True, False, False])
    >>> curve.risk.tolist()
    [0.0, 0.25, 0.3333333333333333, 0.5]
    """
    confidence, hits = check_confidences(confidence, hits, probability=False)
    _, group = np.unique(-confidence, return_inverse=True)
    count = np.bincount(group)
    # Whoever of a group comes next misses with the probability of the group.
    misses = 1.0 - np.bincount(group, hits) / count
    kept = np.arange(1, len(hits) + 1)
    risk = np.repeat(misses, count).cumsum() / kept
    best = np.maximum(kept - hits.sum(), 0) / kept
    return RiskCoverageCurve(
        kept / len(hits),
        risk,
        float(risk.mean()),
        float((risk - best).mean()),
    )


def abstention_threshold(
    confidence: Any, hits: Any, hit_rate: float
) -> float | None:
    """Lowest confidence from which on answers hit as often as is wanted.

    Withholding all answers below it keeps as many as possible. The hit rate is
    that of the users given, so choose on validation users and expect a little
    less of others.

    Args:
        confidence: `(n,)` numbers, higher for surer.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.
        hit_rate: The wanted share of hits, above 0 and up to 1.

    Returns:
        One of the confidences: answers that are as sure or surer hit with at
        least `hit_rate`. `None` if no threshold has that, not even that of the
        surest alone: withholding everything is no answer to what was asked,
        but a caller may want to.

    Raises:
        ValueError: If an argument is empty, its shape wrong, or a value none
            of these.

    Example:

    >>> confidence = [0.9, 0.8, 0.5, 0.2]
    >>> hits = [True, False, True, False]
    >>> keras_bft.evaluation.abstention_threshold(confidence, hits, 0.6)
    0.5
    """
    confidence, hits = check_confidences(confidence, hits, probability=False)
    if not 0 < hit_rate <= 1:
        raise ValueError(
            "`hit_rate` must be above 0 and up to 1. "
            f"Received: hit_rate={hit_rate}"
        )
    values, group = np.unique(-confidence, return_inverse=True)
    kept = np.bincount(group).cumsum()
    found = np.bincount(group, hits).cumsum()
    reached = np.flatnonzero(found / kept >= hit_rate)
    return float(-values[reached[-1]]) if reached.size else None
