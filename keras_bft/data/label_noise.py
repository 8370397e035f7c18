"""Wrong labels, put in on purpose."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np


class CorruptedLabels(NamedTuple):
    """Examples with wrong labels.

    Attributes:
        token_ids: The examples, `(n,)` int32 each.
        corrupted: Where an id was changed, `(n,)` bool each.
    """

    token_ids: list[np.ndarray]
    corrupted: list[np.ndarray]


def corrupt_labels(
    token_ids: Sequence[Any],
    answer_mask: Sequence[Any],
    rate: float,
    vocabulary_size: int,
    seed: int = 0,
    exclude_ids: Sequence[int] = (),
) -> CorruptedLabels:
    """Replaces a share of the answers' tokens by random ones.

    Of all tokens of the answers together, `rate` times their number, rounded,
    are drawn without replacement, and each is replaced by another id of the
    vocabulary, all equally likely. With the same seed the tokens corrupted at
    a smaller rate are among those corrupted at a larger one.

    Args:
        token_ids: Examples, `(n,)` integers each.
        answer_mask: For each example `(n,)` bool, `True` at the tokens of its
            answer. A prompt is never changed.
        rate: Share of the answers' tokens, from 0 to 1 (`np` in the paper).
        vocabulary_size: New ids are below this.
        seed: Seed, at least 0.
        exclude_ids: Ids that are neither replaced nor put in, such as the end
            token.

    Returns:
        Copies of the examples, and where they were changed.

    Raises:
        ValueError: If an argument is outside its domain or shapes differ.

    Example:

    >>> from keras_bft.data import corrupt_labels
    >>> noisy = corrupt_labels(
    ...     [[5, 6, 7, 8]], [[False, False, True, True]], 0.5, 100)
    >>> noisy.corrupted[0].tolist(), noisy.token_ids[0][:2].tolist()
    ([False, False, True, False], [5, 6])
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be from 0 to 1. Received: rate={rate}")
    excluded = np.unique(np.asarray(exclude_ids, "int64"))
    allowed = np.setdiff1d(np.arange(vocabulary_size), excluded)
    if len(allowed) < 2:
        raise ValueError(
            "`vocabulary_size` must leave two ids to choose from. Received: "
            f"vocabulary_size={vocabulary_size}, exclude_ids={exclude_ids}"
        )
    if len(token_ids) != len(answer_mask):
        raise ValueError(
            "`answer_mask` must have an entry for each example. Received: "
            f"{len(token_ids)} examples and {len(answer_mask)} entries"
        )
    sizes = [len(ids) for ids in token_ids]
    for index, (size, mask) in enumerate(zip(sizes, answer_mask, strict=True)):
        if np.shape(mask) != (size,):
            raise ValueError(
                "The mask of an example must have an entry for each token. "
                f"Received: answer_mask[{index}] of shape {np.shape(mask)} "
                f"for {size} tokens"
            )
    ids = np.concatenate([*map(np.asarray, token_ids), []]).astype("int32")
    answers = np.concatenate([*map(np.asarray, answer_mask), []]).astype(bool)
    candidates = np.flatnonzero(answers & ~np.isin(ids, excluded))

    rng = np.random.default_rng(seed)
    order = rng.permutation(len(candidates))
    # A shift by less than the number of ids never meets the id itself.
    shifts = rng.integers(1, len(allowed), len(candidates))
    chosen = order[: round(rate * len(candidates))]
    places = candidates[chosen]
    if places.size and not np.isin(ids[places], allowed).all():
        raise ValueError(
            "`vocabulary_size` must be above all ids of the answers. "
            f"Received: vocabulary_size={vocabulary_size} and id "
            f"{ids[places].max()}"
        )
    ranks = np.searchsorted(allowed, ids[places])
    ids[places] = allowed[(ranks + shifts[chosen]) % len(allowed)]
    corrupted = np.zeros(len(ids), bool)
    corrupted[places] = True
    ends = np.cumsum(sizes)[:-1]
    return CorruptedLabels(np.split(ids, ends), np.split(corrupted, ends))
