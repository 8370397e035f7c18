"""Exact match and token F1, as SQuAD normalises answers."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScores(NamedTuple):
    """Scores of each question.

    Attributes:
        exact_match: 0 or 1, `(N,)`, float64.
        f1: From 0 to 1, `(N,)`, float64.
    """

    exact_match: np.ndarray
    f1: np.ndarray


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles, extra spaces.

    The normalisation of SQuAD (Rajpurkar et al. 2016).

    Args:
        text: An answer.

    Returns:
        The normalised answer.

    Example:

    >>> keras_bft.metrics.normalize_answer("The  U.S. Army!")
    'us army'
    """
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Whether a prediction is one of the answers, once normalised.

    Args:
        prediction: What was generated.
        answers: All that count as right. None means that the question has no
            answer: then an empty prediction is right.

    Returns:
        1.0 or 0.0.

    Example:

    >>> keras_bft.metrics.exact_match("the Rhine.", ["Rhine", "river Rhine"])
    1.0
    """
    prediction = normalize_answer(prediction)
    return float(
        any(prediction == normalize_answer(a) for a in _answers(answers))
    )


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of words, of the best answer.

    Words are counted as often as they occur in both, after normalisation.

    Args:
        prediction: What was generated.
        answers: As in `exact_match`.

    Returns:
        From 0 to 1.

    Example:

    >>> keras_bft.metrics.token_f1("in the year 1901", ["1901"])
    0.5
    """
    words = normalize_answer(prediction).split()
    return max(
        _f1(words, normalize_answer(answer).split())
        for answer in _answers(answers)
    )


def score_answers(
    predictions: Sequence[str], answers: Sequence[Sequence[str]]
) -> AnswerScores:
    """Scores of many predictions.

    Args:
        predictions: What was generated for each question.
        answers: The right answers of each.

    Returns:
        The scores of each question, whose means are the usual EM and F1.

    Raises:
        ValueError: If the numbers differ.

    Example:

    >>> scores = keras_bft.metrics.score_answers(["a cat"], [["cat", "dog"]])
    >>> float(scores.exact_match.mean())
    1.0
    """
    if len(predictions) != len(answers):
        raise ValueError(
            "There must be a prediction for each question. Received: "
            f"{len(predictions)} predictions and {len(answers)} questions"
        )
    pairs = list(zip(predictions, answers, strict=True))
    return AnswerScores(
        np.array([exact_match(*pair) for pair in pairs], "float64"),
        np.array([token_f1(*pair) for pair in pairs], "float64"),
    )


def _answers(answers: Sequence[str]) -> Sequence[str]:
    if isinstance(answers, str):
        raise ValueError(
            "`answers` must be a list of texts. "
            f"Received: answers={answers!r:.200}"
        )
    return answers if len(answers) else [""]


def _f1(words: list[str], right: list[str]) -> float:
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2.0 * common / (len(words) + len(right))
