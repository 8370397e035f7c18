"""Questions of the fine-tuning example, as rows of ids."""

import argparse
from typing import Any
from typing import NamedTuple

import numpy as np

import keras_bft
from keras_bft.data import Passage
from keras_bft.data import Question

_COLORS = ("red", "green", "blue", "white", "black", "yellow", "grey", "brown")
_PLACES = ("harbour", "market", "mill", "school", "bridge", "tower", "garden")


class Rows(NamedTuple):
    """Rows of ids for training, and prompts for evaluation.

    Attributes:
        train: Ids of each row, some of the answers' replaced.
        train_mask: What the loss is of.
        corrupted: Where an id was replaced.
        held_out: Rows that are not trained on, as noisy as the others.
        held_out_mask: What their loss is of.
        prompts: Ids of the prompts to evaluate on.
        questions: The questions of these.
    """

    train: list[np.ndarray]
    train_mask: list[np.ndarray]
    corrupted: list[np.ndarray]
    held_out: list[np.ndarray]
    held_out_mask: list[np.ndarray]
    prompts: list[np.ndarray]
    questions: list[Question]


def padded_rows(rows: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of ids as the inputs of a model."""
    return {
        "token_ids": padded(rows),
        "padding_mask": padded([np.ones(len(row), "int32") for row in rows]),
    }


def padded(parts: list[np.ndarray]) -> np.ndarray:
    """Rows as one array, with zeros on the right, int32."""
    array = np.zeros((len(parts), max(map(len, parts))), "int32")
    for row, part in zip(array, parts, strict=True):
        row[: len(part)] = part
    return array


def made_up_questions(number: int, seed: int) -> list[Question]:
    """Questions about the colours of places, with a passage for each."""
    rng = np.random.default_rng(seed)
    questions = []
    for index in range(number):
        colors = rng.permutation(_COLORS)
        places = rng.permutation(_PLACES)
        facts = [
            f"The {place} is {color}."
            for place, color in zip(places, colors, strict=False)
        ]
        chosen = rng.integers(len(facts))
        questions.append(
            Question(
                f"What colour is the {places[chosen]}?",
                (str(colors[chosen]),),
                (Passage(" ".join(facts)),),
                f"made-up-{index}",
            )
        )
    return questions


def load_rows(lm: Any, arguments: argparse.Namespace) -> Rows:
    """Reads the questions, encodes them and replaces some answers' tokens."""
    number = arguments.num_train + arguments.num_held_out
    train = _questions(arguments, arguments.train, number, 0)
    evaluate = _questions(arguments, arguments.evaluate, None, 1)
    preprocessor, tokenizer = lm.preprocessor, lm.preprocessor.tokenizer
    starts = [tokenizer.start_token_id] if preprocessor.add_start_token else []
    end = tokenizer.end_token_id

    def encode(questions: list[Question]) -> keras_bft.data.EncodedQuestions:
        return keras_bft.data.encode_questions(
            questions, tokenizer.tokenize, arguments.max_length, starts, [end]
        )

    rows = encode(train)
    noisy = keras_bft.data.corrupt_labels(
        rows.token_ids,
        rows.answer_mask,
        arguments.noise,
        lm.backbone.vocabulary_size,
        arguments.seed,
        exclude_ids=[end],
    )
    prompts = encode(evaluate).prompts
    size = len(train) - arguments.num_held_out
    print(
        f"{size} questions to train on, {rows.num_shortened} of all shortened; "
        f"{np.concatenate(noisy.corrupted[:size]).sum()} of "
        f"{np.concatenate(rows.answer_mask[:size]).sum()} answer tokens "
        "replaced."
    )
    return Rows(
        noisy.token_ids[:size],
        rows.answer_mask[:size],
        noisy.corrupted[:size],
        noisy.token_ids[size:],
        rows.answer_mask[size:],
        prompts,
        evaluate,
    )


def _questions(
    arguments: argparse.Namespace, path: Any, number: int | None, seed: int
) -> list[Question]:
    wanted = number or arguments.num_evaluate
    if path is None:
        return made_up_questions(wanted, seed)
    questions = keras_bft.data.read_questions(path)
    distractors = arguments.distractors
    if distractors is not None:
        questions = [
            question
            for question in questions
            if question.gold and len(question.distractors) >= distractors
        ]
        questions = keras_bft.data.mix_distractors(
            questions, distractors, arguments.seed
        )
    if len(questions) < wanted:
        raise SystemExit(
            f"{path} has {len(questions)} questions that fit, and {wanted} are "
            "asked for: give a smaller --num-train, --num-held-out or "
            "--num-evaluate."
        )
    # The same questions whatever the seed of the run.
    order = np.random.default_rng(0).permutation(len(questions))[:wanted]
    return [questions[place] for place in order]
