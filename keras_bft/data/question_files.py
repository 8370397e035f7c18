"""Reads questions from SQuAD, NQ and similar files."""

import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from keras_bft.data._files import read_bytes
from keras_bft.data.questions import Passage
from keras_bft.data.questions import Question


def read_questions(path: str | PathLike[str]) -> list[Question]:
    """Reads a file of questions, answers and passages.

    Three forms are read, and told apart by their fields; each may be
    compressed with gzip (`.gz`):

    - SQuAD 1.1 and 2.0 as published: one JSON object with `data`,
      `paragraphs` and `qas`.
    - JSON lines with `question`, `context` and `answer` or `answers` (texts,
      or a dictionary with `text`, as in the datasets of Hugging Face).
    - JSON lines as retrievers write them: `question`, `answers` and `ctxs`, a
      list of `title`, `text` and `has_answer`; or a single `passage` with its
      `title`, which holds the answer.

    Args:
        path: The file, UTF-8.

    Returns:
        The questions, in the order of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no JSON, or a question lacks a field or has
            a value of another type; the message names the place. If a `.gz`
            file is broken, or unpacks to more than two hundred times its size.

    Example:

    ```python
    questions = keras_bft.data.read_questions("train-v1.1.json")
    print(questions[0].text, questions[0].answers)
    ```
    """
    path = Path(path)
    try:
        text = read_bytes(path, "path").decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The file must be UTF-8. Received: {str(path)!r} with {error}"
        ) from error
    questions = [
        _question(record, f"{path}, {place}")
        for record, place in _records(text, path)
    ]
    if not questions:
        raise ValueError(
            f"The file must hold questions. Received: {str(path)!r} with none"
        )
    return questions


def _records(text: str, path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Dictionaries with a question each, and where they stand."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        # Lines, or else the first of them tells what is wrong.
        whole = None
    if isinstance(whole, dict) and "data" in whole:
        yield from _squad_records(whole["data"], path)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}, {place} is no JSON ({error}). Received: {line:.200}"
            ) from error
        if not isinstance(record, dict):
            raise ValueError(
                f"{path}, {place} must be a JSON object. Received: {line:.200}"
            )
        yield record, place


def _squad_records(
    articles: Any, path: Path
) -> Iterator[tuple[dict[str, Any], str]]:
    for index, article in enumerate(_typed(articles, list, "data", str(path))):
        place = f"data[{index}]"
        where = f"{path}, {place}"
        paragraphs = _field(article, "paragraphs", list, where)
        for part, paragraph in enumerate(paragraphs):
            spot = f"{place}.paragraphs[{part}]"
            for entry in _field(paragraph, "qas", list, f"{path}, {spot}"):
                shared = {
                    "context": paragraph.get("context"),
                    "title": article.get("title", ""),
                }
                yield (
                    shared | _typed(entry, dict, "qas", f"{path}, {spot}"),
                    (f"{spot}, question {entry.get('id', '')}"),
                )


def _question(record: dict[str, Any], where: str) -> Question:
    text = _field(record, "question", str, where)
    if "answer" in record:
        answers = [_field(record, "answer", str, where)]
    else:
        answers = _answers(record, where)
    if "ctxs" in record:
        passages = tuple(
            _retrieved(entry, f"{where}, ctxs[{index}]")
            for index, entry in enumerate(_field(record, "ctxs", list, where))
        )
    else:
        name = "passage" if "passage" in record else "context"
        passages = (
            Passage(
                _field(record, name, str, where),
                _typed(record.get("title", ""), str, "title", where),
                has_answer=bool(answers),
            ),
        )
    return Question(
        text, tuple(dict.fromkeys(answers)), passages, str(record.get("id", ""))
    )


def _answers(record: dict[str, Any], where: str) -> list[str]:
    answers = record.get("answers")
    if isinstance(answers, dict):
        answers = answers.get("text")
    answers = _typed(answers, list, "answers", where)
    return [
        _field(answer, "text", str, where)
        if isinstance(answer, dict)
        else _typed(answer, str, "answers", where)
        for answer in answers
    ]


def _retrieved(entry: Any, where: str) -> Passage:
    return Passage(
        _field(entry, "text", str, where),
        _typed(entry.get("title", ""), str, "title", where),
        _field(entry, "has_answer", bool, where),
    )


def _field(record: Any, name: str, kind: type, where: str) -> Any:
    record = _typed(record, dict, "the entry", where)
    if name not in record:
        raise ValueError(
            f"{where} has no `{name}`. Received: the fields "
            f"{sorted(record)!r:.200}"
        )
    return _typed(record[name], kind, name, where)


def _typed(value: Any, kind: type, name: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(
            f"{where}: `{name}` must be of type {kind.__name__}. "
            f"Received: {value!r:.200}"
        )
    # JSON can escape halves of characters, which no tokenizer takes.
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}: `{name}` must be Unicode text ({error.reason}). "
                f"Received: {value!r:.200}"
            ) from error
    return value
