"""Texts and ids in the many containers that they come in."""

from typing import Any

import keras
import numpy as np


def read_texts(inputs: Any, name: str) -> tuple[list[str], bool]:
    """Returns the texts of an input, and whether it is a single one.

    Args:
        inputs: A text, or a list, NumPy array or eager TensorFlow tensor of
            texts. Bytes are read as UTF-8.
        name: Name of the argument, for the errors.

    Returns:
        The texts as a list, and `True` if `inputs` was a text by itself.

    Raises:
        ValueError: If `inputs` is anything else.
    """
    if isinstance(inputs, str | bytes):
        return [_text(inputs, name)], True
    if hasattr(inputs, "numpy") and not isinstance(inputs, np.ndarray):
        inputs = inputs.numpy()
        if isinstance(inputs, bytes):
            return [_text(inputs, name)], True
    if isinstance(inputs, np.ndarray):
        if inputs.ndim > 1:
            raise ValueError(
                f"`{name}` must be a text or one list of texts. Received: an "
                f"array of the shape {inputs.shape}"
            )
        if inputs.ndim == 0:
            return [_text(inputs.item(), name)], True
        inputs = inputs.tolist()
    if not isinstance(inputs, list | tuple):
        raise ValueError(
            f"`{name}` must be a text, or a list, NumPy array or eager "
            f"TensorFlow tensor of texts. Received: {type(inputs).__name__}: "
            f"{inputs!r:.200}"
        )
    return [_text(value, name) for value in inputs], False


def _text(value: Any, name: str) -> str:
    if hasattr(value, "numpy"):
        value = value.numpy()
    try:
        if isinstance(value, bytes):
            return value.decode("utf-8")
        if isinstance(value, str):
            # A lone surrogate has no bytes, so it can't be tokenised.
            value.encode("utf-8")
            return str(value)
    except UnicodeError as error:
        raise ValueError(
            f"`{name}` must be valid Unicode ({error}). Received: "
            f"{value!r:.200}"
        ) from error
    raise ValueError(
        f"`{name}` must hold texts. Received: {type(value).__name__}: "
        f"{value!r:.200}"
    )


def read_ids(inputs: Any, size: int) -> tuple[list[list[int]], bool]:
    """Returns the rows of ids of an input, and whether it is a single one.

    Args:
        inputs: Ids as a list, a list of lists, an array or a tensor of one or
            two dimensions. An empty list is a row without ids.
        size: Number of ids there are.

    Returns:
        The rows, and `True` if `inputs` was a row by itself.

    Raises:
        ValueError: If `inputs` is anything else, or an id is not below
            `size`.
    """
    if isinstance(inputs, list | tuple):
        parts = [to_array(part) for part in inputs]
        single = all(part.ndim == 0 for part in parts)
        if single:
            parts = [np.array(parts)]
    else:
        array = to_array(inputs)
        single = array.ndim == 1
        parts = [array] if single else list(array) if array.ndim else [array]
    for part in parts:
        is_empty = part.size == 0
        if part.ndim != 1 or not (is_empty or part.dtype.kind in "iu"):
            raise ValueError(
                "`inputs` must be ids, in one row or a list of rows. "
                f"Received: inputs={inputs!r:.200}"
            )
        if not is_empty and (part.min() < 0 or part.max() >= size):
            raise ValueError(
                f"The ids must be from 0 to {size - 1}. Received: ids from "
                f"{part.min()} to {part.max()}"
            )
    return [[int(i) for i in part] for part in parts], single


def to_array(value: Any) -> np.ndarray:
    """Returns an array, of a tensor of any backend or of lists."""
    if keras.ops.is_tensor(value):
        return np.asarray(keras.ops.convert_to_numpy(value))
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            "The rows of an array must have the same length. Received: "
            f"{value!r:.200}"
        ) from error
