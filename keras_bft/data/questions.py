"""Questions with the passages that may answer them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Passage:
    """A text that may hold the answer to a question.

    Args:
        text: The text.
        title: Its title, empty where there is none.
        has_answer: Whether the text holds an answer.
    """

    text: str
    title: str = ""
    has_answer: bool = True


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, its answers and its passages, in the order they are shown.

    Args:
        text: The question.
        answers: All answers that count as right; the first is trained on.
            Empty for a question that its passages do not answer.
        passages: What is to be read for it.
        id: Identifier, for results and error messages.

    Example:

    >>> from keras_bft.data import Passage, Question
    >>> question = Question(
    ...     "Who wrote Faust?", ("Goethe",),
    ...     (Passage("Kant wrote.", has_answer=False),
    ...      Passage("Goethe wrote Faust.")))
    >>> question.gold.text, len(question.distractors)
    ('Goethe wrote Faust.', 1)
    """

    text: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]
    id: str = ""

    @property
    def gold(self) -> Passage | None:
        """The first passage that holds an answer, if one does."""
        return next((p for p in self.passages if p.has_answer), None)

    @property
    def distractors(self) -> tuple[Passage, ...]:
        """The passages that hold no answer, in order."""
        return tuple(p for p in self.passages if not p.has_answer)
