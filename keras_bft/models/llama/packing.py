"""Packing several examples into a row, for training without padding."""

from bisect import bisect_left
from bisect import insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft.data._row_weights import check_row_weights
from keras_bft.models.llama._rows import check_length


def pack_examples(
    token_ids: Sequence[Any],
    sample_weights: Sequence[Any] | None,
    sequence_length: int,
    pad_id: int,
    split: bool = False,
) -> dict[str, np.ndarray]:
    """Packs examples into rows of one length.

    Takes the examples from the longest to the shortest, equal ones in order,
    and puts each into the row with the least room that suffices, so the rows
    are the same every time. They hold what a model needs to keep the examples
    apart: attention within equal `segment_ids`, positions from 0 in each.

    Args:
        token_ids: Examples, each `(n,)` integers, start and end tokens
            included.
        sample_weights: For each example `(n,)` weights, what it is worth to
            predict each token: zero for those of a prompt. The first is not
            used, as nothing predicts it. `None` is ones.
        sequence_length: Length `L` of the rows. At least 2.
        pad_id: Id that fills the rest of a row.
        split: Whether an example that is longer than a row is split. A piece
            starts with the last token of the piece before, so every token but
            the first is a target once. Defaults to `False`, an error.

    Returns:
        Arrays `(N, L)`: `"token_ids"`, `"segment_ids"` (0 for padding, 1 and
        up in each row), `"positions"` (0 for padding), `"padding_mask"`,
        `"targets"` (the next token of the same example, else `pad_id`) and
        `"sample_weight"` (the weight of the target, 0 at the last token of an
        example and for padding).

    Raises:
        ValueError: If an argument is outside its domain, or an example is too
            long.

    Examples:

    >>> rows = pack_examples([[5, 6, 7], [8, 9]], None, 6, pad_id=0)
    >>> print(rows["token_ids"], rows["segment_ids"], rows["positions"])
    [[5 6 7 8 9 0]] [[1 1 1 2 2 0]] [[0 1 2 0 1 0]]
    >>> print(rows["targets"], rows["sample_weight"])
    [[6 7 0 9 0 0]] [[1. 1. 0. 1. 0. 0.]]
    """
    length = check_length(sequence_length)
    examples = _check_examples(token_ids, sample_weights)
    longest = max(len(ids) for ids, _ in examples)
    if longest > length and not split:
        raise ValueError(
            "An example must fit in a row, unless `split=True`. Received: "
            f"sequence_length={sequence_length} and an example of {longest} "
            "tokens"
        )
    pieces = [
        (ids[start : start + length], weights[start : start + length])
        for ids, weights in examples
        # A piece of one token would have no target.
        for start in range(0, max(len(ids) - 1, 1), length - 1)
    ]
    rows = _assign([len(ids) for ids, _ in pieces], length)
    shape = (len(rows), length)
    packed = {
        "token_ids": np.full(shape, pad_id, "int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "positions": np.zeros(shape, "int32"),
        "padding_mask": np.zeros(shape, bool),
        "targets": np.full(shape, pad_id, "int32"),
        "sample_weight": np.zeros(shape, "float32"),
    }
    for row, members in enumerate(rows):
        start = 0
        for segment, index in enumerate(members, 1):
            ids, weights = pieces[index]
            stop = start + len(ids)
            packed["token_ids"][row, start:stop] = ids
            packed["segment_ids"][row, start:stop] = segment
            packed["positions"][row, start:stop] = np.arange(len(ids))
            packed["padding_mask"][row, start:stop] = True
            packed["targets"][row, start : stop - 1] = ids[1:]
            packed["sample_weight"][row, start : stop - 1] = weights[1:]
            start = stop
    return packed


def _assign(sizes: list[int], length: int) -> list[list[int]]:
    """Returns which pieces each row holds: best fit, from the longest."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        place = bisect_left(room, (sizes[index], 0))
        if place < len(room):
            left, row = room.pop(place)
        else:
            left, row = length, len(rows)
            rows.append([])
        rows[row].append(index)
        if left > sizes[index]:
            insort(room, (left - sizes[index], row))
    return rows


def _check_examples(
    token_ids: Sequence[Any], sample_weights: Sequence[Any] | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    if len(token_ids) == 0:
        raise ValueError(
            "`token_ids` must have at least one example. Received: token_ids=[]"
        )
    examples = []
    for index, example in enumerate(token_ids):
        ids = np.asarray(example)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ValueError(
                "Every example must be one dimension of integers, and not "
                f"empty. Received: token_ids[{index}]={example!r:.200}"
            )
        if ids.min() < 0 or ids.max() > np.iinfo("int32").max:
            raise ValueError(
                "The ids must be from 0 on and fit in 32 bits. Received: "
                f"token_ids[{index}]={example!r:.200}"
            )
        examples.append(ids)
    weights = check_row_weights(sample_weights, examples, "an", "example")
    return list(zip(examples, weights, strict=True))
