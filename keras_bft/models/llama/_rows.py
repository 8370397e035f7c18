"""Rows of ids, made in Python also where TensorFlow builds a graph."""

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bft.models.llama._texts import to_array


def check_length(length: int) -> int:
    """Returns the length of rows, or raises a `ValueError` if it is none."""
    if isinstance(length, bool) or not isinstance(length, int) or length < 2:
        raise ValueError(
            "`sequence_length` must be a whole number of at least 2. "
            f"Received: sequence_length={length}"
        )
    return length


def pad_rows(
    rows: list[list[int]], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows padded on the right, and where they have tokens.

    Args:
        rows: Ids, no more than `length`.
        length: Length `T` of the result.
        pad_id: Id that fills up.

    Returns:
        `(B, T)` int32 ids and `(B, T)` booleans.
    """
    ids = np.full((len(rows), length), pad_id, "int32")
    mask = np.zeros((len(rows), length), bool)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = True
    return ids, mask


def row_weights(sample_weight: Any, count: int) -> np.ndarray:
    """Returns the weights of rows as a column, ones if there are none.

    Args:
        sample_weight: A weight for each row, or nothing.
        count: Number of rows.

    Returns:
        `(B, 1)` float32.

    Raises:
        ValueError: If the numbers differ.
    """
    weights = to_array(sample_weight).astype("float32")
    if weights.size == 0:
        return np.ones((count, 1), "float32")
    if weights.ndim > 1 or weights.size != count:
        raise ValueError(
            "`sample_weight` must have one weight for each text. Received: "
            f"{count} texts and sample_weight of the shape {weights.shape}"
        )
    return weights.reshape(-1, 1)


def training_rows(
    pieces: list[list[list[int]]],
    weights: np.ndarray,
    length: int,
    start: list[int],
    end: list[int],
    pad_id: int,
    truncate: bool,
) -> tuple[np.ndarray, ...]:
    """Returns rows of ids, where they have tokens, targets and weights.

    Args:
        pieces: The ids of texts, or those of prompts and of responses.
        weights: `(B, 1)` weights of the rows.
        length: Length `T` of the rows.
        start: Ids in front of every row.
        end: Ids behind every row.
        pad_id: Id that fills up.
        truncate: Whether a response may be cut off as a whole.

    Returns:
        Four arrays `(B, T)`.

    Raises:
        ValueError: If a response is cut off as a whole.
    """
    # One more than the row, since the last token is a target alone.
    room = length + 1 - len(start) - len(end)
    rows = []
    masked_weights = np.zeros((len(weights), length + 1), "float32")
    for index, parts in enumerate(zip(*pieces, strict=True)):
        content = [token for part in parts for token in part]
        rows.append(start + content[:room] + end)
        masked = len(parts[0]) if len(parts) > 1 else 0
        # The prompt fills the row and there is more, the response.
        if masked >= room and len(content) > masked or masked > room:
            if not truncate:
                raise ValueError(
                    f"Prompt {index} leaves no room for its response. "
                    "Shorten it, or leave the row without weight with "
                    f"`truncate=True`. Received: sequence_length={length} "
                    f"and a prompt of {masked} tokens"
                )
            continue
        first = len(start) + masked
        masked_weights[index, first : len(rows[-1])] = weights[index]
    ids, mask = pad_rows(rows, length + 1, pad_id)
    return ids[:, :-1], mask[:, :-1], ids[:, 1:], masked_weights[:, 1:]


def run_python(
    function: Callable[..., tuple[np.ndarray, ...]],
    inputs: list[Any],
    dtypes: list[str],
    length: int,
) -> tuple[Any, ...]:
    """Calls a function of arrays now, or as a step of a TensorFlow graph.

    Args:
        function: Takes as many arguments as there are inputs.
        inputs: The first has as many dimensions as the outputs, less one.
        dtypes: Data types of the outputs.
        length: Size of the outputs' last dimension.

    Returns:
        The outputs as tensors, of the backend or of TensorFlow.
    """
    tensorflow: Any = sys.modules.get("tensorflow")
    # A module that is still being imported has no functions yet.
    is_eager = getattr(tensorflow, "executing_eagerly", lambda: True)
    if is_eager():
        return tuple(map(keras.ops.convert_to_tensor, function(*inputs)))
    outputs = tensorflow.numpy_function(function, inputs, dtypes)
    rank = tensorflow.convert_to_tensor(inputs[0]).shape.rank
    for output in outputs:
        output.set_shape([None] * rank + [length])
    return tuple(outputs)
