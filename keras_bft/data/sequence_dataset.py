"""Batches of next-item sequences for `fit`."""

from collections.abc import Iterable
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from keras_bft.data._bucketed_dataset import BucketedDataset
from keras_bft.data._bucketed_dataset import check_at_least_one
from keras_bft.data.buckets import choose_bucket_lengths
from keras_bft.data.padding import flatten_sequences
from keras_bft.data.padding import padded_rows
from keras_bft.data.timestamps import flatten_timestamps


class SequenceDataset(BucketedDataset):
    """Batches of right-padded sequences and their next items.

    A sequence of `n` items, `n >= 2`, is one row: its inputs are all items but
    the last and its targets all but the first, of which the newest `max_length`
    are kept. Rows of about the same length share a batch, and all batches have
    `batch_size` rows and one of a few lengths, so short histories cost little
    and JAX compiles once a length. The last batch of a length is filled up with
    rows of padding.

    With `shuffle=True` both the rows of each batch and the order of the batches
    change from epoch to epoch. They depend on `seed`, `epoch` and the index of
    the batch alone: not on the backend, nor on what was read before.

    **In `fit`.** Pass `shuffle=False` to `fit`: by default Keras would shuffle
    the order of the batches once more with a seed of its own. Keras calls
    `on_epoch_end`, which moves to the next epoch, once before training and once
    after every epoch. So set `dataset.epoch = initial_epoch` before each `fit`:
    training that is interrupted and resumed then sees what it would have seen
    without the interruption.

    Args:
        sequences: Item codes of each user, oldest first: 1-D integers from 1,
            such as `LeaveOneOut.train`. Those with fewer than two items have no
            target; they are left out and counted in `num_without_target`.
        max_length: Largest number of inputs of a row.
        batch_size: Number of rows of every batch.
        bucket_lengths: Padded lengths of the batches, rising and ending with
            `max_length`. `"auto"` chooses up to four which leave the least
            padding; its last is the length of the longest row.
        shuffle: Whether to shuffle. Without it rows keep their order within a
            length.
        seed: Integer seed of the shuffling, at least 0.
        timestamps: Times of the items of each user, numbers in seconds, such
            as `LeaveOneOut.train_timestamps`. A batch's inputs are then a pair
            of the items and the seconds since the first item of the sequence.
        **kwargs: `workers`, `use_multiprocessing` and `max_queue_size` of
            `keras.utils.PyDataset`. Leave `workers` at 1: a batch takes tens of
            microseconds, and with more workers the queue of Keras 3.15 carries
            batches made ahead for one epoch over into the next.

    Raises:
        ValueError: If no sequence has two items, an item is not an integer from
            1, or an argument is out of its range.

    Examples:

    >>> from keras_bft.data import SequenceDataset
    >>> dataset = SequenceDataset(
    ...     [[1, 2, 3], [4, 5], [6]], batch_size=2, shuffle=False
    ... )
    >>> inputs, targets = dataset[0]
    >>> inputs
    array([[1, 2],
           [4, 0]], dtype=int32)
    >>> targets
    array([[2, 3],
           [5, 0]], dtype=int32)
    >>> dataset.num_without_target
    1
    """

    # Positions by which the targets come after the inputs.
    lag = 1

    def __init__(
        self,
        sequences: Iterable[Any],
        max_length: int = 50,
        batch_size: int = 256,
        bucket_lengths: str | Sequence[int] = "auto",
        shuffle: bool = True,
        seed: int = 0,
        timestamps: Iterable[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(shuffle, seed, **kwargs)
        sequences = list(sequences)
        check_at_least_one("max_length", max_length)
        check_at_least_one("batch_size", batch_size)
        self.max_length = max_length
        self.batch_size = batch_size

        items, ends, lengths = flatten_sequences(sequences)
        has_target = lengths >= 2
        if not has_target.any():
            raise ValueError(
                "Training needs a sequence with at least 2 items. Received: "
                f"{len(lengths)} sequences, the longest of "
                f"{lengths.max(initial=0)} items"
            )
        self.num_without_target = int(np.count_nonzero(~has_target))
        self._items = items
        self._lengths = np.minimum(lengths[has_target] - self.lag, max_length)
        self._starts = ends[has_target] - self._lengths - self.lag
        self._times = None
        if timestamps is not None:
            self._times = flatten_timestamps(timestamps, lengths)
        self.bucket_lengths = self._resolve_bucket_lengths(bucket_lengths)
        self._bucket = np.searchsorted(self.bucket_lengths, self._lengths)
        self.epoch = 0

    def _resolve_bucket_lengths(
        self, bucket_lengths: str | Sequence[int]
    ) -> list[int]:
        if isinstance(bucket_lengths, str):
            if bucket_lengths != "auto":
                raise ValueError(
                    "`bucket_lengths` must be 'auto' or a sequence of "
                    f"integers. Received: bucket_lengths={bucket_lengths!r}"
                )
            return choose_bucket_lengths(self._lengths, self.batch_size)
        resolved = [int(length) for length in bucket_lengths]
        rising = all(a < b for a, b in pairwise([0, *resolved]))
        if not rising or resolved[-1:] != [self.max_length]:
            raise ValueError(
                "`bucket_lengths` must be positive, rise, and end with "
                f"max_length={self.max_length}. Received: "
                f"bucket_lengths={bucket_lengths}"
            )
        return resolved

    @property
    def num_sequences(self) -> int:
        """Number of rows that have a target, padding rows not included."""
        return len(self._lengths)

    @property
    def max_item(self) -> int:
        """Largest item code, of all sequences with a target."""
        return int(self._items.max())

    def _bucket_rows(self) -> list[tuple[np.ndarray, int]]:
        return [
            (np.flatnonzero(self._bucket == bucket), self.batch_size)
            for bucket in range(len(self.bucket_lengths))
        ]

    def __getitem__(self, index: int) -> tuple[Any, np.ndarray]:
        """Batch of the current epoch.

        Args:
            index: Position of the batch, `-len(self) <= index < len(self)`.

        Returns:
            Tuple of inputs and targets, both `(batch_size, length)`, int32,
            0 where there is no item. With timestamps the inputs are a tuple of
            two such arrays.

        Raises:
            IndexError: If there is no such batch.
        """
        length, rows = self._batches[index]
        starts = np.zeros(self.batch_size, dtype=np.int64)
        lengths = np.zeros(self.batch_size, dtype=np.int64)
        starts[: len(rows)] = self._starts[rows]
        lengths[: len(rows)] = self._lengths[rows]
        inputs, targets = self._rows(index, starts, lengths, length)
        if self._times is None:
            return inputs, targets
        times = padded_rows(self._times, starts, lengths, length)
        return (inputs, times), targets

    def _rows(
        self, index: int, starts: np.ndarray, lengths: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of a batch, `(batch_size, length)` each."""
        return (
            padded_rows(self._items, starts, lengths, length),
            padded_rows(self._items, starts + self.lag, lengths, length),
        )
