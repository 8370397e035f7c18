"""Batches of rows of about the same length, the same in every run."""

from typing import Any

import keras
import numpy as np


class BucketedDataset(keras.utils.PyDataset):
    """Base of data sets whose batches are planned anew for each epoch.

    A subclass sets `bucket_lengths`, gives `_bucket_rows`, and then sets
    `epoch`.

    Args:
        shuffle: Whether to shuffle.
        seed: Seed of the shuffling, at least 0.
        **kwargs: Arguments of `keras.utils.PyDataset`.
    """

    bucket_lengths: list[int]

    def __init__(self, shuffle: bool, seed: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shuffle = shuffle
        self.seed = seed

    def _bucket_rows(self) -> list[tuple[np.ndarray, int]]:
        """Rows of each bucket, and how many of them make a batch."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """Epoch whose batches are given, from 0. Can be set."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ValueError(
                f"`epoch` must be at least 0. Received: epoch={epoch}"
            )
        self._epoch = epoch
        self._batches = self._plan(epoch)

    def _plan(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """Padded length and rows of each batch of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        batches: list[tuple[int, np.ndarray]] = []
        for length, (rows, batch_size) in zip(
            self.bucket_lengths, self._bucket_rows(), strict=True
        ):
            if self.shuffle:
                rows = rng.permutation(rows)
            for start in range(0, len(rows), batch_size):
                batches.append((length, rows[start : start + batch_size]))
        if self.shuffle:
            batches = [batches[i] for i in rng.permutation(len(batches))]
        # Keras on TensorFlow looks at the first two batches to learn which
        # axes vary, so these two must differ in length if any do.
        for i, (length, _) in enumerate(batches):
            if length != batches[0][0]:
                batches[1], batches[i] = batches[i], batches[1]
                break
        return batches

    def __len__(self) -> int:
        """Number of batches of an epoch, the same in each."""
        return len(self._batches)

    def on_epoch_end(self) -> None:
        """Moves to the next epoch. Keras calls it."""
        self.epoch += 1


def check_at_least_one(name: str, value: Any) -> None:
    """Raises a `ValueError` unless `value` is 1 or more."""
    if value < 1:
        raise ValueError(
            f"`{name}` must be at least 1. Received: {name}={value}"
        )
