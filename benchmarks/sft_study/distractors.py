"""Questions with a gold passage and enough distracting ones."""

import json
import math
import re
from collections import Counter
from pathlib import Path

from keras_bft.data import Passage
from keras_bft.data import Question
from keras_bft.data import read_questions
from keras_bft.metrics import normalize_answer


def write_retrieved(
    paths: list[Path], num_distractors: int, folder: Path
) -> tuple[int, int]:
    """Writes `train.jsonl` and `evaluate.jsonl`, three quarters and the rest.

    The first file has the retrieved passages. Where none of a question's holds
    the answer, its gold passage is taken from the other files. A question with
    too few distractors gets those of other questions that share most words
    with it, as a retriever would find them, if they do not hold its answer.

    Args:
        paths: Files that `keras_bft.data.read_questions` reads.
        num_distractors: Smallest number of distractors of a question.
        folder: Where to write; files that are there are kept.

    Returns:
        Number of questions of the two files.
    """
    outputs = [folder / "train.jsonl", folder / "evaluate.jsonl"]
    if not all(path.exists() for path in outputs):
        questions = _with_gold(paths)
        pool = _Pool([p for q in questions for p in q.distractors])
        lines = [
            json.dumps(_record(q, pool.fill(q, num_distractors)))
            for q in questions
        ]
        folder.mkdir(parents=True, exist_ok=True)
        size = 3 * len(lines) // 4
        for path, part in zip(
            outputs, (lines[:size], lines[size:]), strict=True
        ):
            path.write_text("\n".join(part) + "\n")
    train, evaluate = (len(path.read_text().splitlines()) for path in outputs)
    return train, evaluate


def _with_gold(paths: list[Path]) -> list[Question]:
    gold = {
        question.text: question.gold
        for path in paths[1:]
        for question in read_questions(path)
        if question.gold
    }
    found = []
    for question in read_questions(paths[0]):
        passage = question.gold or gold.get(question.text)
        if passage is not None:
            passages = (passage, *question.distractors)
            found.append(
                Question(question.text, question.answers, passages, question.id)
            )
    return found


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class _Pool:
    """Passages, found by the words that they share with a question."""

    def __init__(self, passages: list[Passage]) -> None:
        self.passages = list(dict.fromkeys(passages))
        self.words = [_words(f"{p.title} {p.text}") for p in self.passages]
        counts = Counter(word for words in self.words for word in words)
        self.weight = {
            word: math.log(len(self.passages) / count)
            for word, count in counts.items()
        }

    def fill(self, question: Question, number: int) -> list[Passage]:
        """The distractors of a question, and others up to a number."""
        chosen = list(question.distractors)
        if len(chosen) >= number:
            return chosen
        asked = _words(question.text)
        order = sorted(
            range(len(self.passages)),
            key=lambda i: (
                -sum(self.weight[word] for word in asked & self.words[i])
            ),
        )
        answers = [normalize_answer(answer) for answer in question.answers]
        for place in order:
            passage = self.passages[place]
            text = normalize_answer(passage.text)
            if passage not in chosen and not any(a in text for a in answers):
                chosen.append(passage)
            if len(chosen) == number:
                break
        return chosen


def _record(
    question: Question, distractors: list[Passage]
) -> dict[str, object]:
    passages = [question.gold, *distractors]
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "ctxs": [
            {
                "title": passage.title,
                "text": passage.text,
                "has_answer": place == 0,
            }
            for place, passage in enumerate(passages)
        ],
    }
