"""Recommenders that keep what they have read of their users."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft.models._incremental import Incremental
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.models.user_state import UserState


class UserStates(SequentialRecommender):
    """The part of a recommender of layers that goes on from what it has read.

    A subclass has `blocks`, layers with caches.
    """

    _incremental: Incremental | None = None

    def start(
        self,
        histories: Sequence[Sequence[int] | np.ndarray],
        timestamps: Sequence[Any] | None = None,
        restart_length: int | None = None,
        batch_size: int = 256,
    ) -> UserState:
        """Reads histories, and keeps what it takes to go on from there.

        Give the state to `append` with every new item, and to `recommend` or
        `score` in place of the histories. It keeps the keys and values of
        every layer, with their precisions: a new item then costs one position,
        which looks at those before, `O(T)`, and the results are those of the
        whole histories to 1e-5 in float32. For one user at a time that pays
        with windows of hundreds of items; with 50, what it takes to call a
        model is most of the time either way (`benchmarks/serving.py`).

        **Histories longer than `max_length`.** A model reads the newest
        `max_length` items and numbers them from the first of these, so every
        further item moves all positions and none of the keys stays what it
        was. With `restart_length=max_length`, the default, `append` then
        reads the whole window again, which is as exact and costs what a full
        recomputation costs. With a smaller one it reads the newest
        `restart_length` items and goes on from these until the window is full
        again: one full reading in `max_length - restart_length + 1` items, and
        the results are those of `score(state.windows)`, of histories that are
        cut off there, as a sliding window does at another place.

        Args:
            histories: One sequence of item ids per user, oldest first.
            timestamps: As in `score()`.
            restart_length: Number of newest items that are kept of a full
                window when another item comes. Defaults to `max_length`.
            batch_size: Largest number of histories read at once.

        Returns:
            A `keras_bft.models.UserState`.

        Raises:
            ValueError: As in `score()`, or if `restart_length` is not from 1
                to `max_length`.
            NotImplementedError: If the model is bidirectional (`BERT4Rec`).
        """
        if self._incremental is None:
            self._incremental = Incremental(self)
        return self._incremental.start(
            histories, timestamps, restart_length, batch_size
        )

    def append(
        self,
        state: UserState,
        items: Sequence[int] | np.ndarray,
        timestamps: Sequence[int] | np.ndarray | None = None,
        batch_size: int = 256,
    ) -> UserState:
        """Adds an item to each user of a state, see `start`.

        Compiled on JAX and TensorFlow, once for each power of two that users
        are padded to. As with `predict`, one thread at a time.

        Args:
            state: What `start` or `append` of this model returned. It is left
                as it was. `state[rows]` has some of its users.
            items: `(len(state),)` ids, the new item of each user.
            timestamps: `(len(state),)` numbers, its time in seconds, for a
                model that reads them.
            batch_size: Largest number of users read at once.

        Returns:
            The state of the longer histories.

        Raises:
            ValueError: If `items` or `timestamps` do not fit the state or the
                model, or the state is of another model.
            NotImplementedError: As in `start`.
        """
        if self._incremental is None:
            self._incremental = Incremental(self)
        return self._incremental.append(state, items, timestamps, batch_size)
