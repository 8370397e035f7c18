"""A user state out of the arrays of a file, if they are one."""

import re
from typing import Any

import numpy as np

_CACHE = re.compile(r"cache/([0-9]{1,9})/([^/]+)")
_PLAIN = {
    "lengths",
    "items",
    "window_lengths",
    "states",
    "restart_length",
    "timestamps",
    "log_precisions",
}


def state_of_arrays(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Splits the arrays that `UserState.save` wrote.

    Args:
        arrays: Arrays by name.

    Returns:
        Arguments of `UserState`.

    Raises:
        ValueError: If an array is missing, unknown or does not fit the others.
    """
    rows = len(_checked(arrays, "lengths", "i", (None,)))
    lengths = arrays["lengths"]
    if lengths.min(initial=0) < 0:
        raise _wrong("lengths", "must not be negative", lengths.min())
    # Added as Python's integers, which do not overflow.
    total = sum(lengths.tolist())
    items = _checked(arrays, "items", "i", (total,))
    if items.min(initial=1) < 1:
        raise _wrong("items", "must be 1 or larger", items.min())
    window = _checked(arrays, "window_lengths", "i", (rows,))
    if np.any((window < 0) | (window > lengths)):
        raise _wrong("window_lengths", "must not exceed `lengths`", window)
    states = _checked(arrays, "states", "f", (rows, None))
    ends = np.cumsum(lengths)
    times = precisions = None
    if "timestamps" in arrays:
        seconds = _checked(arrays, "timestamps", "i", (total,))
        times = np.split(seconds, ends)[:rows]
    if "log_precisions" in arrays:
        precisions = _checked(arrays, "log_precisions", "f", states.shape)
    return {
        "histories": np.split(items, ends)[:rows],
        "timestamps": times,
        "window_lengths": window,
        "states": states,
        "caches": _caches(arrays, rows),
        "restart_length": int(_checked(arrays, "restart_length", "i", ())),
        "log_precisions": precisions,
    }


def _caches(
    arrays: dict[str, np.ndarray], rows: int
) -> list[dict[str, np.ndarray]]:
    caches: dict[int, dict[str, np.ndarray]] = {}
    for key in sorted(set(arrays) - _PLAIN):
        match = _CACHE.fullmatch(key)
        shape = arrays[key].shape
        if match is None or len(shape) < 2:
            raise _wrong(key, "is no array of a user state", shape)
        _checked(arrays, key, "biuf", (rows, *shape[1:]))
        caches.setdefault(int(match[1]), {})[match[2]] = arrays[key]
    if sorted(caches) != list(range(len(caches))):
        raise _wrong("cache", "must have every layer", sorted(caches))
    return [caches[layer] for layer in sorted(caches)]


def _checked(
    arrays: dict[str, np.ndarray],
    name: str,
    kinds: str,
    shape: tuple[int | None, ...],
) -> np.ndarray:
    if name not in arrays:
        raise _wrong(name, "is missing", sorted(arrays))
    array = arrays[name]
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, size)
        for wanted, size in zip(shape, array.shape, strict=True)
    )
    if array.dtype.kind not in kinds or not fits:
        what = {"i": "integers", "f": "floats"}.get(kinds, "numbers")
        raise _wrong(
            name,
            f"must be {what} of shape {shape}",
            f"{array.dtype} of shape {array.shape}",
        )
    return array


def _wrong(name: str, problem: str, value: Any) -> ValueError:
    return ValueError(
        f"In the file of a user state, `{name}` {problem}. Received: "
        f"{value!s:.200}"
    )
