"""Answers of a language model to many prompts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

# Rows have a length that is a multiple of this, so that a compiled generation
# serves many batches.
_MULTIPLE = 64


def generate_answers(
    lm: Any,
    prompts: Sequence[Any],
    max_new_tokens: int = 32,
    batch_size: int = 32,
    stop: str | None = "\n",
    verbose: int = 1,
) -> list[str]:
    """Continues prompts in batches of about the same length.

    Args:
        lm: A compiled `keras_bft.models.BFTLlamaCausalLM` with a preprocessor.
            Its sampler chooses the tokens; `lm.compile(sampler="greedy")`.
        prompts: Ids of each prompt, start token included, `(n,)`, such as
            `EncodedQuestions.prompts`.
        max_new_tokens: Largest number of tokens of an answer.
        batch_size: Prompts continued at a time.
        stop: Text at which an answer ends, besides the end tokens. Where it is
            a token by itself the generation stops there. `None` for none.
        verbose: 1 for a progress bar, 0 for silence.

    Returns:
        The answers as texts, in the order of the prompts, without spaces
        around them.

    Raises:
        ValueError: If an argument is outside its domain or a prompt is empty.

    Example:

    ```python
    rows = keras_bft.data.encode_questions(
        questions, lm.preprocessor.tokenizer.tokenize, max_length=512
    )
    lm.compile(sampler="greedy")
    answers = keras_bft.evaluation.generate_answers(lm, rows.prompts)
    scores = keras_bft.metrics.score_answers(
        answers, [question.answers for question in questions]
    )
    print(scores.exact_match.mean(), scores.f1.mean())
    ```
    """
    for name, value in (
        ("max_new_tokens", max_new_tokens),
        ("batch_size", batch_size),
    ):
        if value < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: {name}={value}"
            )
    if lm.preprocessor is None:
        raise ValueError(
            "`lm` must have a preprocessor, whose tokenizer reads the answers. "
            f"Received: lm={lm}"
        )
    sizes = np.array([len(prompt) for prompt in prompts], "int64")
    if not sizes.all():
        raise ValueError(
            "Every prompt must have a token. Received: prompt "
            f"{int(np.argmin(sizes))} with none"
        )
    tokenizer = lm.preprocessor.tokenizer
    stop_ids = _stop_ids(tokenizer, stop)
    generate = lm.make_generate_function()
    answers = [""] * len(prompts)
    order = np.argsort(-sizes, kind="stable")
    progress = keras.utils.Progbar(
        len(prompts), verbose=verbose, unit_name="prompt"
    )
    for start in range(0, len(prompts), batch_size):
        rows = order[start : start + batch_size]
        # The last batch is filled up with one of its prompts.
        filled = np.resize(rows, min(batch_size, len(prompts)))
        slots = -(-int(sizes[rows].max()) // _MULTIPLE) * _MULTIPLE
        token_ids = np.zeros((len(filled), slots + max_new_tokens), "int32")
        mask = np.zeros_like(token_ids)
        for place, row in enumerate(filled):
            token_ids[place, : sizes[row]] = prompts[int(row)]
            mask[place, : sizes[row]] = 1
        outputs = generate(
            {"token_ids": token_ids, "padding_mask": mask}, stop_ids
        )
        ids, real = (
            keras.ops.convert_to_numpy(outputs[name])
            for name in ("token_ids", "padding_mask")
        )
        for place, row in enumerate(rows):
            new = slice(sizes[row], sizes[row] + max_new_tokens)
            text = tokenizer.detokenize(
                ids[place, new][real[place, new].astype(bool)],
                skip_special_tokens=True,
            )
            answers[row] = (text.split(stop)[0] if stop else text).strip()
        progress.update(min(start + batch_size, len(prompts)))
    return answers


def _stop_ids(tokenizer: Any, stop: str | None) -> tuple[int, ...] | None:
    ids = list(tokenizer.end_token_ids)
    if stop:
        [stop_ids] = tokenizer.tokenize([stop])
        if len(stop_ids) == 1:
            ids += stop_ids
    return tuple(ids) or None
