"""Paired bootstrap of the difference between two models."""

import dataclasses
from typing import Any

import numpy as np

# Numbers drawn at a time: 32 MiB of int64.
_CHUNK = 2**22
# A binomial draw costs about as much as this many uniform integers.
_BINOMIAL_COST = 16


@dataclasses.dataclass(frozen=True)
class BootstrapInterval:
    """Mean difference between two models with a bootstrap interval.

    Args:
        difference: Mean over users of the second model's value minus the
            first's.
        low: Lower end of the interval.
        high: Upper end of the interval.
        confidence: Share of the resampled differences inside, such as 0.95.
        num_resamples: Number of resamples the ends are quantiles of.
        num_users: Number of users resampled.
    """

    difference: float
    low: float
    high: float
    confidence: float
    num_resamples: int
    num_users: int

    def __str__(self) -> str:
        return f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def paired_bootstrap(
    first: Any,
    second: Any,
    *,
    num_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BootstrapInterval:
    """Interval of the mean of `second - first` by resampling users.

    Each resample draws as many users as there are, with replacement, and
    takes both models' values of each user drawn, so what the models share (an
    easy or a hard user) cancels. The interval lies between the
    `(1 - confidence) / 2` quantiles of the resampled means. It tells how the
    difference would vary with other users, not with other training seeds.

    Resamples are drawn some at a time, so memory does not grow with their
    number. Where few distinct differences occur, as with measures that have a
    cut-off, how often a resample holds each of them is drawn from the
    multinomial distribution: the same distribution of means, and cheaper than
    drawing users one by one.

    Args:
        first: Numbers of shape `(num_users,)`, the values of the model to
            compare with, such as `ranking.hits(10)`.
        second: Numbers of shape `(num_users,)`, the other model's values for
            the same users in the same order.
        num_resamples: Number of resamples. Defaults to 10,000.
        confidence: Between 0 and 1. Defaults to 0.95.
        seed: Seed of the resamples: the same seed gives the same interval.
            Defaults to 0.

    Returns:
        A `keras_bft.evaluation.BootstrapInterval`.

    Raises:
        ValueError: If the shapes differ or are empty, if a value is not
            finite, or if `num_resamples` or `confidence` is out of range.

    Examples:

    >>> from keras_bft.evaluation import paired_bootstrap
    >>> interval = paired_bootstrap([0, 0, 1, 0], [1, 0, 1, 0])
    >>> print(interval)
    +0.2500 [+0.0000, +0.7500]
    """
    first = np.asarray(first, dtype="float64")
    second = np.asarray(second, dtype="float64")
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise ValueError(
            "`first` and `second` must be one-dimensional, not empty and "
            "equally long: one value for each user. Received: "
            f"first.shape={first.shape}, second.shape={second.shape}"
        )
    if num_resamples < 1:
        raise ValueError(
            "`num_resamples` must be positive. Received: "
            f"num_resamples={num_resamples}"
        )
    if not 0 < confidence < 1:
        raise ValueError(
            "`confidence` must be between 0 and 1. Received: "
            f"confidence={confidence}"
        )
    differences = second - first
    if not np.isfinite(differences).all():
        user = int(np.argmin(np.isfinite(differences)))
        raise ValueError(
            "`first` and `second` must be finite. Received: "
            f"{first[user]} and {second[user]} for user {user}"
        )
    means = _resampled_means(differences, num_resamples, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return BootstrapInterval(
        difference=float(differences.mean()),
        low=float(low),
        high=float(high),
        confidence=confidence,
        num_resamples=num_resamples,
        num_users=len(differences),
    )


def _resampled_means(
    values: np.ndarray, num_resamples: int, seed: int
) -> np.ndarray:
    """Returns means of resamples with replacement, (num_resamples,)."""
    size = len(values)
    distinct, counts = np.unique(values, return_counts=True)
    few = _BINOMIAL_COST * len(distinct) <= size
    rng = np.random.default_rng(seed)
    means = np.empty(num_resamples)
    rows = max(1, _CHUNK // (len(distinct) if few else size))
    for start in range(0, num_resamples, rows):
        chunk = means[start : start + rows]
        if few:
            weights = rng.multinomial(size, counts / size, size=len(chunk))
            chunk[:] = weights @ distinct / size
        else:
            drawn = rng.integers(0, size, size=(len(chunk), size))
            chunk[:] = values[drawn].mean(axis=1)
    return means
