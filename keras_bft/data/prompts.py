"""Questions as prompts, and as rows of ids that keep their answers."""

import dataclasses
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bft.data.questions import Passage
from keras_bft.data.questions import Question

PROMPT = "{passages}\n\nQuestion: {question}\nAnswer:"

Tokenize = Callable[[list[str]], list[list[int]]]


class EncodedQuestions(NamedTuple):
    """Questions as ids.

    Attributes:
        prompts: Ids of the prompts, the start token included, `(m,)` int32.
        token_ids: Ids of prompt, answer and end token, `(n,)` int32.
        answer_mask: `True` at the answer and the end token, `(n,)` bool: what
            the loss is of.
        num_shortened: Number of questions of which passages were shortened.
    """

    prompts: list[np.ndarray]
    token_ids: list[np.ndarray]
    answer_mask: list[np.ndarray]
    num_shortened: int


def format_prompt(question: Question, template: str = PROMPT) -> str:
    """The text of a prompt.

    Args:
        question: The question.
        template: Text with the fields `{passages}` and `{question}`. Passages
            are put below each other, numbered if there are several, with
            their titles.

    Returns:
        The prompt, without the answer.

    Example:

    >>> from keras_bft.data import Passage, Question, format_prompt
    >>> print(format_prompt(Question(
    ...     "Who wrote Faust?", ("Goethe",),
    ...     (Passage("Goethe wrote Faust.", "Faust"),))))
    Passage (Faust): Goethe wrote Faust.
    <BLANKLINE>
    Question: Who wrote Faust?
    Answer:
    """
    several = len(question.passages) > 1
    parts = []
    for number, passage in enumerate(question.passages, 1):
        label = f" {number}" if several else ""
        title = f" ({passage.title})" if passage.title else ""
        parts.append(f"Passage{label}{title}: {passage.text}")
    return template.format(passages="\n\n".join(parts), question=question.text)


def encode_questions(
    questions: Iterable[Question],
    tokenize: Tokenize,
    max_length: int,
    start_ids: Sequence[int] = (),
    end_ids: Sequence[int] = (),
    template: str = PROMPT,
) -> EncodedQuestions:
    """Turns questions into the rows of a supervised fine-tuning.

    Prompt and answer are tokenised each on its own, the answer with a space
    before it, so the border between them is that of generation. Where a row
    is too long its passages are shortened, all by the same share of words,
    until it fits: that with the answer from both ends around the answer, which
    stays whole, the others from their ends.

    Args:
        questions: Questions with at least one answer; the first is learned.
        tokenize: Gives the ids of texts, without start and end tokens, such
            as `preprocessor.tokenizer.tokenize`.
        max_length: Largest number of ids of a row.
        start_ids: Ids before each prompt.
        end_ids: Ids after each answer.
        template: As in `format_prompt`.

    Returns:
        The rows.

    Raises:
        ValueError: If a question has no answer, does not fit even without the
            rest of its passages, or has to be shortened and its answer is not
            found in the passage that is to hold it.

    Example:

    >>> from keras_bft.data import Passage, Question, encode_questions
    >>> question = Question(
    ...     "Who?", ("Goethe",), (Passage("Goethe wrote Faust."),))
    >>> letters = lambda texts: [[ord(c) for c in text] for text in texts]
    >>> rows = encode_questions([question], letters, 60, end_ids=[0])
    >>> int(rows.answer_mask[0].sum()), rows.num_shortened
    (8, 0)
    """
    questions = list(questions)
    for index, question in enumerate(questions):
        if not question.answers:
            raise ValueError(
                "Every question must have an answer to learn. Received: "
                f"question {index}, {question.text!r:.200}, without"
            )
    prompts = tokenize([format_prompt(q, template) for q in questions])
    answers = tokenize([f" {question.answers[0]}" for question in questions])
    shortened = 0
    encoded = EncodedQuestions([], [], [], 0)
    for question, prompt, answer in zip(
        questions, prompts, answers, strict=True
    ):
        response = [*answer, *end_ids]
        room = max_length - len(start_ids) - len(response)
        if len(prompt) > room:
            prompt = _shortened_prompt(question, tokenize, room, template)
            shortened += 1
        prompt = [*start_ids, *prompt]
        ids = np.array([*prompt, *response], "int32")
        encoded.prompts.append(ids[: len(prompt)])
        encoded.token_ids.append(ids)
        encoded.answer_mask.append(np.arange(len(ids)) >= len(prompt))
    return encoded._replace(num_shortened=shortened)


def _shortened_prompt(
    question: Question, tokenize: Tokenize, room: int, template: str
) -> list[int]:
    """Ids of the longest prompt with a share of the passages' words."""
    best = None
    low, high = 0, 64
    while low <= high:
        share = (low + high) // 2
        shorter = dataclasses.replace(
            question,
            passages=tuple(
                shorten_passage(passage, share / 64, question.answers)
                for passage in question.passages
            ),
        )
        [ids] = tokenize([format_prompt(shorter, template)])
        if len(ids) <= room:
            best, low = ids, share + 1
        else:
            high = share - 1
    if best is None:
        raise ValueError(
            "`max_length` must leave room for question and answer. Received: "
            f"{question.text!r:.200}, with room for {room} ids of the prompt"
        )
    return best


def shorten_passage(
    passage: Passage, share: float, answers: Sequence[str] = ()
) -> Passage:
    """Keeps a share of a passage's words, and its answer whole.

    Args:
        passage: The passage.
        share: Share of the words that is kept, from 0 to 1.
        answers: The answers of the question. In a passage that holds one the
            words around the first that is found are kept, in others those at
            the beginning.

    Returns:
        The shortened passage.

    Raises:
        ValueError: If no answer is found in a passage that holds one.
    """
    words = [match.span() for match in re.finditer(r"\S+", passage.text)]
    count = min(int(share * len(words)), len(words))
    first, last = 0, 0
    if passage.has_answer:
        start, stop = _find_answer(passage, answers)
        inside = [i for i, (a, b) in enumerate(words) if a < stop and b > start]
        first, last = inside[0], inside[-1] + 1
    spare = max(count - (last - first), 0)
    # As much before the answer as after it, or what there is.
    first -= min(first, max(spare // 2, spare - (len(words) - last)))
    last = min(len(words), max(last, first + count))
    if first == last:
        return dataclasses.replace(passage, text="")
    text = passage.text[words[first][0] : words[last - 1][1]]
    return dataclasses.replace(passage, text=text)


def _find_answer(passage: Passage, answers: Sequence[str]) -> tuple[int, int]:
    for answer in answers:
        words = map(re.escape, answer.split())
        found = re.search(r"\s+".join(words), passage.text, re.IGNORECASE)
        if answer.strip() and found:
            return found.span()
    raise ValueError(
        "A passage to be shortened must hold an answer word for word. "
        f"Received: answers={tuple(answers)!r:.200} and the passage "
        f"{passage.text!r:.200}"
    )
