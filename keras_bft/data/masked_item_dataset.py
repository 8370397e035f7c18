"""Batches of sequences with masked items, for bidirectional models."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_bft.data.padding import padded_rows
from keras_bft.data.sequence_dataset import SequenceDataset


class MaskedItemDataset(SequenceDataset):
    """Batches in which masked items are to be guessed from all others.

    As BERT4Rec (Sun et al. 2019) trains: of each sequence the newest
    `max_length` items are read, each is masked with probability `mask_rate`,
    and the targets are the masked items alone. In a share `last_rate` of the
    rows only the last item is masked, which is what a recommendation asks. A
    row of which chance masks nothing has its last item masked.

    Rows, lengths, shuffling, `epoch` and the use in `fit` are those of
    `SequenceDataset`; the masks, too, depend on `seed`, `epoch` and the index
    of the batch alone.

    Args:
        sequences: Item codes of each user, oldest first: 1-D integers from 1.
            Those with fewer than two items are left out: nothing would be left
            to guess from.
        mask_id: Id that stands for a masked item, such as `BERT4Rec.mask_id`.
        mask_rate: Probability of an item to be masked, above 0, below 1.
            Defaults to 0.2.
        last_rate: Share of rows with their last item masked alone, 0 to 1.
            Defaults to 0.1.
        **kwargs: Arguments of `SequenceDataset`.

    Raises:
        ValueError: If a rate is out of its range, `mask_id` is an item, or as
            `SequenceDataset` raises.

    Examples:

    >>> from keras_bft.data import MaskedItemDataset
    >>> dataset = MaskedItemDataset(
    ...     [[1, 2, 3, 4], [5, 6]], mask_id=7, last_rate=1.0, batch_size=2,
    ...     shuffle=False)
    >>> inputs, targets = dataset[0]
    >>> inputs
    array([[1, 2, 3, 7],
           [5, 7, 0, 0]], dtype=int32)
    >>> targets
    array([[0, 0, 0, 4],
           [0, 6, 0, 0]], dtype=int32)
    """

    lag = 0

    def __init__(
        self,
        sequences: Iterable[Any],
        mask_id: int,
        mask_rate: float = 0.2,
        last_rate: float = 0.1,
        **kwargs: Any,
    ) -> None:
        if not 0 < mask_rate < 1:
            raise ValueError(
                "`mask_rate` must be above 0 and below 1. "
                f"Received: mask_rate={mask_rate}"
            )
        if not 0 <= last_rate <= 1:
            raise ValueError(
                "`last_rate` must be from 0 to 1. "
                f"Received: last_rate={last_rate}"
            )
        super().__init__(sequences, **kwargs)
        if mask_id <= self.max_item:
            raise ValueError(
                "`mask_id` must be larger than every item, of which the "
                f"largest is {self.max_item}. Received: mask_id={mask_id}"
            )
        self.mask_id = mask_id
        self.mask_rate = mask_rate
        self.last_rate = last_rate

    def _rows(
        self, index: int, starts: np.ndarray, lengths: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        items = padded_rows(self._items, starts, lengths, length)
        # The trailing number keeps these draws apart from the shuffling's.
        index %= len(self)
        rng = np.random.default_rng([self.seed, self.epoch, index, 1])
        only_last = rng.random(len(items)) < self.last_rate
        masked = rng.random(items.shape) < self.mask_rate
        masked &= (items > 0) & ~only_last[:, None]
        rows = np.flatnonzero((lengths > 0) & ~masked.any(axis=1))
        masked[rows, lengths[rows] - 1] = True
        return (
            np.where(masked, np.int32(self.mask_id), items),
            np.where(masked, items, np.int32(0)),
        )
