"""Scores of items, and the best of them, after histories."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bft.data.timestamps import flatten_timestamps
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import chunks_of_similar_length
from keras_bft.models._histories import padded_batch
from keras_bft.models._item_training import ItemTraining
from keras_bft.models._scoring import best_items
from keras_bft.models._scoring import host_array
from keras_bft.models._scoring import score_items
from keras_bft.models.user_state import UserState


class HistoryScoring(ItemTraining):
    """The part of a recommender that reads histories and answers."""

    max_length: int
    embedding_dim: int

    def score(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
    ) -> np.ndarray:
        """Scores every item as the next one of each history.

        Args:
            histories: One sequence of item ids per user, oldest first. Of a
                long history the newest `max_length` items are read. Or what
                `start` or `append` of a causal model returned.
            batch_size: Largest number of histories encoded at once.
            timestamps: One sequence of integer times per user, for a model
                that reads them. A `UserState` has its own.

        Returns:
            Scores of shape `(len(histories), num_items + 1)`, float32. Column
            0, padding, is minus infinity.

        Raises:
            ValueError: If a history is empty or holds an unknown id, or
                `timestamps` do not fit the histories or the model.
        """
        _, states = self._read(histories, batch_size, timestamps)
        return score_items(states, host_array(self.item_table()))

    def _read(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int,
        timestamps: Sequence[Any] | None,
    ) -> tuple[Sequence[np.ndarray], np.ndarray]:
        """Checked histories, and the state after each, `(n, D)` float32."""
        if isinstance(histories, UserState):
            self._check_user_state(histories, timestamps)
            return histories.histories, histories.states
        arrays = check_histories(histories, self.num_items)
        columns = [[self._input_ids(array) for array in arrays]]
        self.check_timestamps(timestamps)
        if timestamps is not None:
            ends = np.cumsum([len(array) for array in arrays])
            times = flatten_timestamps(timestamps, np.diff(ends, prepend=0))
            columns.append(np.split(times, ends[:-1]))
        states = np.zeros((len(arrays), self.embedding_dim), "float32")
        lengths = [min(len(ids), self.max_length) for ids in columns[0]]
        for users, length, rows in chunks_of_similar_length(
            lengths, self.max_length, batch_size
        ):
            batch = [
                padded_batch([column[user] for user in users], length, rows)
                for column in columns
            ]
            output = self.predict_on_batch(
                tuple(batch) if len(batch) > 1 else batch[0]
            )
            last = np.array(lengths)[users] - 1
            output = ops.convert_to_numpy(output)
            states[users] = output[np.arange(len(users)), last]
        return arrays, states

    def check_timestamps(self, timestamps: Any) -> None:
        """Raises a `ValueError` unless times are given where they are read."""
        if (timestamps is not None) == self.reads_timestamps:
            return
        reads = "reads" if self.reads_timestamps else "does not read"
        given = "no timestamps"
        if timestamps is not None:
            given = f"timestamps of {len(timestamps)} histories"
        raise ValueError(
            f"This {type(self).__name__} {reads} timestamps. Received: {given}"
        )

    def _check_user_state(self, state: UserState, timestamps: Any) -> None:
        largest = max((int(h.max()) for h in state.histories), default=0)
        if (
            timestamps is not None
            or state.states.shape[1:] != (self.embedding_dim,)
            or largest > self.num_items
        ):
            raise ValueError(
                "A `UserState` must come from this model, and has timestamps "
                "of its own. Received: states of shape "
                f"{state.states.shape} for embedding_dim={self.embedding_dim}, "
                f"items up to {largest} of {self.num_items}, "
                f"timestamps={'None' if timestamps is None else 'given'}"
            )

    def _input_ids(self, history: np.ndarray) -> np.ndarray:
        """Ids that the model reads; the last one's state gives the scores."""
        return history

    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Recommends the `k` best items after each history.

        Works for any history, also of users that were not seen in training.
        The catalogue is scored a part at a time, so memory does not grow with
        `batch_size * num_items`.

        Args:
            histories: One sequence of item ids per user, oldest first, or what
                `start` or `append` of a causal model returned.
            k: Number of items to recommend.
            filter_seen: Whether to leave out the items of the history, all of
                it. Defaults to `True`.
            batch_size: Largest number of histories read and scored at once.
            timestamps: As in `score()`.

        Returns:
            Item ids, int64, and scores, float32, both `(len(histories), k)`,
            best first; equal scores in the order of the ids. Where fewer than
            `k` items are left, the rest is id 0 with minus infinity.

        Raises:
            ValueError: If `k` is not from 1 to `num_items`, or as in
                `score()`.
        """
        if not 1 <= k <= self.num_items:
            raise ValueError(
                f"`k` must be from 1 to `num_items`={self.num_items}. "
                f"Received: k={k}"
            )
        seen, states = self._read(histories, batch_size, timestamps)
        table = host_array(self.item_table())
        ids = np.zeros((len(states), k), "int64")
        best = np.full((len(states), k), -np.inf, "float32")
        for start in range(0, len(states), batch_size):
            rows = slice(start, start + batch_size)
            ids[rows], best[rows] = best_items(
                states[rows], table, k, seen[rows] if filter_seen else None
            )
        return ids, best
