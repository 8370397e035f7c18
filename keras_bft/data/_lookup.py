"""Codes of original ids."""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np


def look_up(
    sequences: Iterable[Iterable[Any]],
    code_of: Mapping[Hashable, int],
    kind: str,
) -> list[np.ndarray]:
    """Translates sequences of original ids to codes.

    Args:
        sequences: Original ids.
        code_of: Code of each known id.
        kind: `"item"` or `"user"`, for errors.

    Returns:
        List of int32 arrays of shape `(length,)`.

    Raises:
        ValueError: If an id is unknown.
    """
    unknown: dict[Any, None] = {}
    coded = []
    for sequence in sequences:
        ids = list(sequence)
        unknown.update(dict.fromkeys(x for x in ids if x not in code_of))
        codes = [code_of.get(x, 0) for x in ids]
        coded.append(np.array(codes, dtype=np.int32))
    if unknown:
        raise ValueError(
            f"{len(unknown)} {kind} ids are unknown; the first are "
            f"{list(unknown)[:5]}. Known ids are in `{kind}_ids`, such as "
            f"{list(code_of)[:3]}. Received: unknown {kind} ids."
        )
    return coded
