"""Measures of confidence, with intervals over users."""

from collections.abc import Callable
from collections.abc import Mapping

import keras
import numpy as np

from confidence_study.answers import Answers
from keras_bft.evaluation import brier_score
from keras_bft.evaluation import expected_calibration_error
from keras_bft.evaluation import negative_log_likelihood
from keras_bft.evaluation import risk_coverage

# Methods whose confidence is no probability that the list holds the item.
ORDER_ONLY = ("precision alone", "max probability")
OF_ORDER = (
    "hit rate",
    "AURC",
    "excess AURC",
    "least confident quarter",
    "most confident quarter",
)
PROBABILITY_MEASURES: dict[str, Callable[..., float]] = {
    "ECE, equal mass": lambda c, h: expected_calibration_error(
        c, h, binning="mass"
    ),
    "ECE, equal width": expected_calibration_error,
    "NLL": negative_log_likelihood,
    "Brier": brier_score,
}
MEASURES = (*OF_ORDER, *PROBABILITY_MEASURES)
# Whose smaller value is better, and which are compared between methods.
COMPARED = ("AURC", "excess AURC", "ECE, equal mass", "NLL", "Brier")
_SEED = 0

# By method and seed.
AllAnswers = Mapping[str, Mapping[int, Answers]]


def is_probability(method: str) -> bool:
    """Whether a method's confidence is one of the list."""
    return not method.endswith(ORDER_ONLY)


def measure(
    confidence: np.ndarray, hits: np.ndarray, probability: bool
) -> dict[str, float]:
    """All measures of a method's answers, by name."""
    curve = risk_coverage(confidence, hits)
    number = len(hits)
    quarter = max(number // 4, 1)
    rest = number - quarter
    # Ties at the edges of the quarters count as the curve counts them.
    misses = number * curve.risk[-1]
    if rest:
        misses -= rest * curve.risk[rest - 1]
    values = {
        "hit rate": float(hits.mean()),
        "AURC": curve.area,
        "excess AURC": curve.excess_area,
        "least confident quarter": 1 - misses / quarter,
        "most confident quarter": 1 - curve.risk[quarter - 1],
    }
    if probability:
        for name, function in PROBABILITY_MEASURES.items():
            values[name] = function(confidence, hits)
    return values


def resampled(
    answers: AllAnswers, resamples: int
) -> dict[str, dict[str, np.ndarray]]:
    """Means over seeds of every measure, of users drawn with replacement.

    Every method and seed sees the same users in a resample, so differences
    between methods are paired.

    Returns:
        For each method and measure `(1 + resamples,)`: of the users as they
        are, and of each resample.
    """
    some = next(iter(next(iter(answers.values())).values()))
    rng = np.random.default_rng(_SEED)
    users = np.arange(len(some.hits))
    progress = keras.utils.Progbar(resamples + 1, unit_name="resample")
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(resamples + 1):
        chosen = rng.choice(users, len(users)) if number else users
        for method, by_seed in answers.items():
            of_seeds = [
                measure(a.confidence[chosen], a.hits[chosen], p)
                for p in [is_probability(method)]
                for a in by_seed.values()
            ]
            values = found.setdefault(method, {})
            for name in of_seeds[0]:
                mean = np.mean([of_seed[name] for of_seed in of_seeds])
                values.setdefault(name, []).append(float(mean))
        progress.update(number + 1)
    return {
        method: {name: np.array(x) for name, x in values.items()}
        for method, values in found.items()
    }


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """The value, and the ends of its 95 % interval over users.

    NaN ends where a resample has an infinite value.
    """
    drawn = values[1:]
    if not np.isfinite(drawn).all():
        return float(values[0]), float("nan"), float("nan")
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(values[0]), float(low), float(high)
