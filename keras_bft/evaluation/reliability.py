"""Whether a stated confidence comes true, bin by bin."""

from typing import Any
from typing import NamedTuple

import numpy as np

from keras_bft.evaluation._confidence_arrays import check_confidences

BINNINGS = ("width", "mass")


class ReliabilityCurve(NamedTuple):
    """Confidence and what came of it, by bins of confidence.

    A bin holds what is above its lower edge and not above its upper one; the
    first also holds its lower edge.

    Attributes:
        confidence: `(num_bins,)`, mean confidence, NaN of an empty bin.
        accuracy: `(num_bins,)`, share of hits, NaN of an empty bin.
        counts: `(num_bins,)` int64, how many each bin holds.
        edges: `(num_bins + 1,)`, of the bins.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    edges: np.ndarray


def reliability_curve(
    confidence: Any, hits: Any, num_bins: int = 15, binning: str = "width"
) -> ReliabilityCurve:
    """Compares confidence with the share of hits in bins of confidence.

    Args:
        confidence: `(n,)`, the stated probability of a hit.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.
        num_bins: Number of bins. Defaults to 15.
        binning: `"width"` (default), bins of equal width from 0 to 1, or
            `"mass"`, bins of as equal a number as ties allow, with edges that
            are confidences which occur; equal ones are always in one bin, so
            some bins can be empty. Where most confidences are small, as those
            of lists from a large catalogue, bins of equal mass say more.

    Returns:
        A `keras_bft.evaluation.ReliabilityCurve`.

    Raises:
        ValueError: If an argument is empty, its shape wrong, or a value none
            of these.

    References:
        Niculescu-Mizil and Caruana, 2005, Predicting good probabilities with
        supervised learning.

    Example:

    >>> curve = keras_bft.evaluation.reliability_curve(
    ...     [0.1, 0.3, 0.8, 0.9], [False, True, True, True], num_bins=2)
    >>> curve.confidence.tolist(), curve.accuracy.tolist()
    ([0.2, 0.8500000000000001], [0.5, 1.0])
    """
    confidence, hits = check_confidences(confidence, hits)
    if num_bins < 1 or num_bins != int(num_bins):
        raise ValueError(
            "`num_bins` must be a positive integer. "
            f"Received: num_bins={num_bins}"
        )
    if binning not in BINNINGS:
        raise ValueError(
            f"`binning` must be one of {BINNINGS}. "
            f"Received: binning={binning!r}"
        )
    edges = np.linspace(0.0, 1.0, int(num_bins) + 1)
    if binning == "mass":
        edges = np.quantile(confidence, edges, method="inverted_cdf")
    index = np.searchsorted(edges[1:-1], confidence, side="left")
    count = np.bincount(index, minlength=len(edges) - 1)
    size = np.where(count, count, np.nan)
    return ReliabilityCurve(
        np.bincount(index, confidence, len(count)) / size,
        np.bincount(index, hits, len(count)) / size,
        count,
        edges,
    )


def expected_calibration_error(
    confidence: Any, hits: Any, num_bins: int = 15, binning: str = "width"
) -> float:
    """Mean distance between confidence and share of hits.

    The mean over bins, weighted by their counts. It depends on the bins, and
    with a share of hits that is estimated in each it is above zero for perfect
    confidences too: compare models with the same bins on the same users.

    Args:
        confidence: `(n,)`, the stated probability of a hit.
        hits: `(n,)`, whether it was one: booleans, or zeros and ones.
        num_bins: As in `reliability_curve`.
        binning: As in `reliability_curve`.

    Returns:
        From 0, which is best, to 1.

    Raises:
        ValueError: As in `reliability_curve`.

    References:
        Guo et al., 2017, On calibration of modern neural networks
        (arXiv 1706.04599).

    Example:

    >>> error = keras_bft.evaluation.expected_calibration_error(
    ...     [0.25, 0.25, 0.75, 0.75], [False, True, True, True], num_bins=2)
    >>> error
    0.25
    """
    curve = reliability_curve(confidence, hits, num_bins, binning)
    held = curve.counts > 0
    distance = np.abs(curve.confidence[held] - curve.accuracy[held])
    return float(np.average(distance, weights=curve.counts[held]))
