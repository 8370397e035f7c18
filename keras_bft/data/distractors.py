"""Passages without the answer, mixed with the one that holds it."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from keras_bft.data.questions import Question


def mix_distractors(
    questions: Iterable[Question], num_distractors: int, seed: int = 0
) -> list[Question]:
    """Shuffles the gold passage among passages without the answer.

    Of each question the first passage that holds an answer is kept, with the
    first `num_distractors` that do not: those a retriever ranked highest, and
    so the most distracting. Their order is drawn from `seed` and the position
    of the question alone.

    Args:
        questions: Questions with retrieved passages.
        num_distractors: Number `k` of distractors, from 0.
        seed: Seed of the order, at least 0.

    Returns:
        The questions, each with `k + 1` passages.

    Raises:
        ValueError: If a question has no passage with an answer or fewer than
            `k` without. Filter by `question.gold` and
            `len(question.distractors)` first.

    Example:

    >>> from keras_bft.data import Passage, Question, mix_distractors
    >>> question = Question("Who wrote Faust?", ("Goethe",), (
    ...     Passage("Goethe wrote Faust."),
    ...     Passage("Kant lived in Prussia.", has_answer=False)))
    >>> [mixed] = mix_distractors([question], num_distractors=1, seed=3)
    >>> [passage.has_answer for passage in mixed.passages]
    [False, True]
    """
    if num_distractors < 0:
        raise ValueError(
            "`num_distractors` must be zero or more. "
            f"Received: num_distractors={num_distractors}"
        )
    mixed = []
    for index, question in enumerate(questions):
        if question.gold is None:
            raise ValueError(
                "Every question must have a passage that holds its answer. "
                f"Received: question {index}, {question.text!r:.200}, without"
            )
        distractors = question.distractors[:num_distractors]
        if len(distractors) < num_distractors:
            raise ValueError(
                f"Every question must have {num_distractors} passages without "
                f"its answer. Received: question {index}, "
                f"{question.text!r:.200}, with {len(distractors)}"
            )
        passages = (question.gold, *distractors)
        order = np.random.default_rng([seed, index]).permutation(len(passages))
        mixed.append(
            dataclasses.replace(
                question, passages=tuple(passages[i] for i in order)
            )
        )
    return mixed
