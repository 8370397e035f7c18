"""Masks of generation: prompts of any length, padded on any side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bft.typing import Tensor


def prompt_bounds(padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """First position of each prompt, and the one after its last.

    Args:
        padding_mask: `(B, S)` bool, `True` at the prompts.

    Returns:
        Two int32 tensors `(B,)`.
    """
    length = ops.shape(padding_mask)[1]
    mask = ops.cast(padding_mask, "int32")
    start = ops.argmax(mask, axis=1)
    end = length - ops.argmax(ops.flip(mask, axis=1), axis=1)
    return ops.cast(start, "int32"), ops.cast(end, "int32")


def is_any_of(token_ids: Tensor, ids: Sequence[int]) -> Tensor:
    """Where tokens are one of some ids, bool of the same shape."""
    found = ops.zeros_like(token_ids, dtype="bool")
    for token_id in ids:
        found = ops.logical_or(found, ops.equal(token_ids, token_id))
    return found


def generated_mask(
    token_ids: Tensor,
    padding_mask: Tensor,
    start: Tensor,
    stop_token_ids: Sequence[int] | None,
) -> Tensor:
    """Where the prompt and its continuation are, the stop token included.

    Args:
        token_ids: Generated tokens, `(B, S)`.
        padding_mask: `(B, S)` bool, `True` at the prompts.
        start: First position of each prompt, `(B,)`.
        stop_token_ids: Tokens at which a continuation ends, or `None`.

    Returns:
        `(B, S)` bool.
    """
    slots = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    begun = slots[None, :] >= start[:, None]
    if not stop_token_ids:
        return begun
    new = ops.logical_and(begun, ops.logical_not(padding_mask))
    stops = ops.cast(
        ops.logical_and(is_any_of(token_ids, stop_token_ids), new), "int32"
    )
    over = ops.cumsum(stops, axis=1) - stops > 0
    return ops.logical_and(begun, ops.logical_not(over))


def with_known_tokens(
    logits: Tensor, token_ids: Tensor, known: Tensor
) -> Tensor:
    """Logits that are certain of the tokens that a prompt gives.

    A batch is continued from where its first prompt ends. Without this, beams
    would be judged by what they expected of the rest of the other prompts.

    Args:
        logits: `(B, V)`.
        token_ids: `(B, 1)`, the next tokens of the prompts.
        known: `(B,)` bool, where the next token is part of the prompt.

    Returns:
        `(B, V)`.
    """
    ids = ops.arange(logits.shape[-1], dtype="int32")[None, :]
    certain = ops.where(ops.equal(ids, token_ids), 0.0, -1e4)
    certain = ops.cast(certain, logits.dtype)
    return ops.where(known[:, None], certain, logits)


def filler_id(stop_token_ids: Sequence[int] | None) -> int:
    """A token id that stops nothing, for positions not yet generated.

    Samplers look for stop tokens among them, and padding often is one.
    """
    return next(i for i in range(10**9) if i not in (stop_token_ids or ()))


def check_prompts(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Checks token ids and mask of the prompts, as NumPy arrays.

    Raises:
        ValueError: If their shapes differ, a row has no token, or a prompt has
            a hole.
    """
    token_ids, mask = (
        np.asarray(ops.convert_to_numpy(inputs[name]))
        for name in ("token_ids", "padding_mask")
    )
    if token_ids.ndim != 2 or token_ids.shape != mask.shape:
        raise ValueError(
            "`token_ids` and `padding_mask` must both have the shape "
            f"`(batch, length)`. Received: token_ids of shape "
            f"{token_ids.shape}, padding_mask of shape {mask.shape}"
        )
    mask = mask.astype(bool)
    for row, real in enumerate(mask):
        where = np.flatnonzero(real)
        if len(where) == 0 or where[-1] - where[0] + 1 != len(where):
            raise ValueError(
                "A prompt must be one run of at least one token, padded left "
                f"or right. Received: row {row} of `padding_mask`, "
                f"{real.astype(int).tolist()}"
            )
    return {"token_ids": token_ids, "padding_mask": mask}
