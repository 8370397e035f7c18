"""Batches of token rows within a budget of tokens, for `fit`."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft.data._bucketed_dataset import BucketedDataset
from keras_bft.data._bucketed_dataset import check_at_least_one
from keras_bft.data._row_weights import check_row_weights
from keras_bft.data.buckets import choose_bucket_lengths


class TokenDataset(BucketedDataset):
    """Batches of rows of ids, each with about as many tokens as the others.

    Rows of about the same length share a batch, padded on the right to one of
    a few lengths, so JAX compiles once a length. A batch has as many rows as
    `tokens_per_batch` allows; the last one of a length is filled up with rows
    of padding. To fill rows with several examples instead, see
    `keras_bft.models.pack_examples`.

    Rows and batches are shuffled anew in each epoch, by `seed`, `epoch` and
    nothing else. Pass `shuffle=False` to `fit`, and set `dataset.epoch =
    initial_epoch` before it, as with `SequenceDataset`.

    Args:
        token_ids: Rows, `(n,)` integers each, `n >= 2`.
        sample_weights: For each row `(n,)` what it is worth to predict each
            token, such as `EncodedQuestions.answer_mask`. `None` is ones.
        tokens_per_batch: Largest number of tokens of a batch, padding
            included. At least the length of the longest row less one.
        shuffle: Whether to shuffle.
        seed: Seed, at least 0.
        pad_id: Id that fills rows up.
        max_buckets: Largest number of padded lengths.
        **kwargs: Arguments of `keras.utils.PyDataset`; leave `workers` at 1.

    Raises:
        ValueError: If an argument is outside its domain or shapes differ.

    Example:

    >>> from keras_bft.data import TokenDataset
    >>> dataset = TokenDataset(
    ...     [[5, 6, 7], [8, 9]], tokens_per_batch=4, shuffle=False)
    >>> inputs, targets, weights = dataset[0]
    >>> inputs["token_ids"].tolist(), targets.tolist(), weights.tolist()
    ([[5, 6], [8, 0]], [[6, 7], [9, 0]], [[1.0, 1.0], [1.0, 0.0]])
    """

    def __init__(
        self,
        token_ids: Sequence[Any],
        sample_weights: Sequence[Any] | None = None,
        tokens_per_batch: int = 4096,
        shuffle: bool = True,
        seed: int = 0,
        pad_id: int = 0,
        max_buckets: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(shuffle, seed, **kwargs)
        check_at_least_one("tokens_per_batch", tokens_per_batch)
        check_at_least_one("max_buckets", max_buckets)
        self.tokens_per_batch = tokens_per_batch
        self.pad_id = pad_id
        self._rows = [np.asarray(row) for row in token_ids]
        for index, row in enumerate(self._rows):
            if row.ndim != 1 or len(row) < 2 or row.dtype.kind not in "iu":
                raise ValueError(
                    "Every row must have at least two integers. Received: "
                    f"token_ids[{index}]={row!r:.200}"
                )
        if not self._rows:
            raise ValueError("`token_ids` must have rows. Received: none")
        self._weights = check_row_weights(
            sample_weights, self._rows, "a", "row"
        )
        lengths = np.array([len(row) - 1 for row in self._rows])
        if lengths.max() > tokens_per_batch:
            raise ValueError(
                "`tokens_per_batch` must hold the longest row. Received: "
                f"tokens_per_batch={tokens_per_batch} and a row with "
                f"{lengths.max()} tokens to predict"
            )
        self.bucket_lengths = choose_bucket_lengths(
            lengths, self._batch_size, max_buckets
        )
        self._bucket = np.searchsorted(self.bucket_lengths, lengths)
        self.epoch = 0

    @property
    def _batch_size(self) -> Callable[[Any], Any]:
        """Number of rows of a batch by its length."""
        return lambda length: self.tokens_per_batch // length

    def _bucket_rows(self) -> list[tuple[np.ndarray, int]]:
        return [
            (np.flatnonzero(self._bucket == bucket), self._batch_size(length))
            for bucket, length in enumerate(self.bucket_lengths)
        ]

    @property
    def num_target_tokens(self) -> int:
        """Number of tokens of an epoch that have weight."""
        return sum(int(np.count_nonzero(w[1:])) for w in self._weights)

    def num_tokens(self, index: int) -> int:
        """Number of inputs of a batch, padding not included."""
        return sum(len(self._rows[row]) - 1 for row in self._batches[index][1])

    def __getitem__(
        self, index: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Batch of the current epoch.

        Args:
            index: Position of the batch, `-len(self) <= index < len(self)`.

        Returns:
            A dictionary of `"token_ids"` and `"padding_mask"`, the next tokens
            and their weights, all `(rows, length)`.

        Raises:
            IndexError: If there is no such batch.
        """
        length, rows = self._batches[index]
        shape = (self._batch_size(length), length)
        token_ids = np.full(shape, self.pad_id, "int32")
        mask = np.zeros(shape, bool)
        targets = np.full(shape, self.pad_id, "int32")
        weights = np.zeros(shape, "float32")
        for place, row in enumerate(rows):
            size = len(self._rows[row]) - 1
            token_ids[place, :size] = self._rows[row][:-1]
            mask[place, :size] = True
            targets[place, :size] = self._rows[row][1:]
            weights[place, :size] = self._weights[row][1:]
        return (
            {"token_ids": token_ids, "padding_mask": mask},
            targets,
            weights,
        )
