"""How sure a recommender is of what it recommends."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bft.models._scoring import item_logits
from keras_bft.models._scoring import log_normalizer

# Numbers held at a time: 64 MiB of float32.
_MAX_NUMBERS = 2**24
# Largest log of a variance that is told from a larger one.
_LARGEST_EXPONENT = 60.0


class Confidence(NamedTuple):
    """How sure a model is of its recommendations, as `recommend` returns it.

    Probabilities are those of a softmax over the items that could have been
    recommended: the items of the history are left out where `recommend` leaves
    them out, so they are of the next item given that it is one of the others.
    They are what training with a full or sampled softmax aims at, not with
    `BCE` or `GBCE`; whether they come true is for
    `keras_bft.evaluation.reliability_curve` to say.

    No loss reads the precision after the last layer: it tells users apart,
    and its scale is not learned. `keras_bft.evaluation.fit_temperature` fits
    that of the logits.

    Attributes:
        items: `(n, k)` float64, the probability that the next item is this
            one; 0 where there is no item.
        lists: `(n,)` float64, the probability that the list holds the next
            item, the sum of those of its items.
        log_precision: `(n,)` float64, minus the log of the mean variance of
            the channels of the state that was scored, whatever the items; or
            `None` of a plain model, which has no precision.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> ids, scores, confidence = model.recommend(
    ...     [[3, 5, 7], [2]], k=4, return_confidence=True)
    >>> confidence.items.shape, confidence.lists.shape
    ((2, 4), (2,))
    >>> bool(np.all(confidence.lists < 1.0))
    True
    """

    items: np.ndarray
    lists: np.ndarray
    log_precision: np.ndarray | None


def variances_of(log_precisions: np.ndarray | None) -> np.ndarray | None:
    """Variances of the states' channels, float32, of their log-precisions."""
    if log_precisions is None:
        return None
    # Beyond it every logit is zero to a part in 1e12, and none overflows.
    return np.exp(-np.maximum(log_precisions, -_LARGEST_EXPONENT))


def item_probabilities(
    ids: np.ndarray,
    states: np.ndarray,
    table: np.ndarray,
    histories: Sequence[np.ndarray] | None,
    variances: np.ndarray | None,
) -> np.ndarray:
    """Probabilities of items in a softmax over the catalogue.

    Args:
        ids: `(n, k)` int64, 0 where there is no item.
        states: `(n, D)` float32.
        table: `(num_items + 1, D)`, padding first.
        histories: Items of each row that are not in the catalogue.
        variances: As in `item_logits`.

    Returns:
        `(n, k)` float64, 0 where there is no item.
    """
    if not len(ids):
        return np.zeros(ids.shape)
    sums = log_normalizer(states, table, histories, variances)
    logits = np.empty(ids.shape)
    width = max(1, _MAX_NUMBERS // table.shape[1])
    for row, chosen in enumerate(ids):
        own = None if variances is None else variances[row : row + 1]
        for start in range(0, len(chosen), width):
            columns = slice(start, start + width)
            items = table[chosen[columns]].astype("float32", copy=False)
            logits[row, columns] = item_logits(
                states[row : row + 1], items, own
            )[0]
    # No item is left where the sum is of nothing, and all ids are then 0.
    logits = np.where(ids > 0, logits, -np.inf)
    return np.exp(logits - np.where(np.isfinite(sums), sums, 0.0)[:, None])


def list_confidence(
    items: np.ndarray, log_precisions: np.ndarray | None
) -> Confidence:
    """Joins what is known of the items of each list.

    Args:
        items: `(n, k)` float64, their probabilities.
        log_precisions: Log-precision of the states' channels, `(n, D)`, or
            `None`.
    """
    mean = None
    if log_precisions is not None:
        log_variances = -log_precisions.astype("float64")
        largest = log_variances.max(axis=1, keepdims=True)
        mean = np.exp(log_variances - largest).mean(axis=1)
        mean = -(largest[:, 0] + np.log(mean))
    # The sum of all probabilities there are may round to more than one.
    lists = np.minimum(items.sum(axis=1), 1.0)
    return Confidence(np.minimum(items, 1.0), lists, mean)
