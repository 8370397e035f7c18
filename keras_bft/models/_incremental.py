"""Incremental inference: new items at the cost of a step, not of a history."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bft.data.timestamps import flatten_timestamps
from keras_bft.data.timestamps import relative_timestamps
from keras_bft.data.timestamps import whole_seconds
from keras_bft.models._cached_encoder import CachedEncoder
from keras_bft.models._cached_encoder import stored_dtype
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import check_ids
from keras_bft.models._histories import chunks_of_similar_length
from keras_bft.models._histories import padded_batch
from keras_bft.models.user_state import UserState


class Incremental:
    """Starts and continues the states of a recommender's users.

    Args:
        recommender: A `FilterRecommender`.

    Raises:
        NotImplementedError: If its layers are not causal.
    """

    def __init__(self, recommender: Any) -> None:
        if not all(block.attention.causal for block in recommender.blocks):
            raise NotImplementedError(
                "A new item changes all that a bidirectional model made of "
                "those before, so nothing of it can be kept. Give `recommend` "
                "the whole histories. "
                f"Received: {type(recommender).__name__} with layers that are "
                "not causal"
            )
        if not recommender.built:
            recommender.build((None, recommender.max_length))
        self.recommender = recommender
        self.encoder = CachedEncoder(recommender)
        self.empty = empty_caches(recommender)

    def start(
        self,
        histories: Sequence[Any],
        timestamps: Sequence[Any] | None,
        restart_length: int | None,
        batch_size: int,
    ) -> UserState:
        """See `FilterRecommender.start`."""
        model = self.recommender
        if restart_length is None:
            restart_length = model.max_length
        if not 1 <= restart_length <= model.max_length:
            raise ValueError(
                "`restart_length` must be from 1 to "
                f"`max_length`={model.max_length}. "
                f"Received: restart_length={restart_length}"
            )
        arrays = check_histories(histories, model.num_items)
        lengths = np.array([len(array) for array in arrays], "int64")
        model.check_timestamps(timestamps)
        times = None
        if timestamps is not None:
            flatten_timestamps(timestamps, lengths)
            times = [
                whole_seconds(np.array(t)).astype("int64") for t in timestamps
            ]
        state = UserState(
            histories=[array.astype("int64") for array in arrays],
            timestamps=times,
            window_lengths=np.minimum(lengths, model.max_length),
            states=np.zeros((len(arrays), model.embedding_dim), "float32"),
            caches=[
                {name: _padded(none, len(arrays)) for name, none in c.items()}
                for c in self.empty
            ],
            restart_length=int(restart_length),
            log_precisions=(
                np.zeros((len(arrays), model.embedding_dim), "float32")
                if model.has_precision
                else None
            ),
        )
        users = np.arange(len(state))
        self._read(state, users, state.window_lengths, batch_size)
        return state

    def append(
        self,
        state: UserState,
        items: Sequence[int] | np.ndarray,
        timestamps: Sequence[int] | np.ndarray | None,
        batch_size: int,
    ) -> UserState:
        """See `FilterRecommender.append`."""
        model = self.recommender
        self._check_state(state)
        items = _per_user("items", items, len(state))
        check_ids("items", items, model.num_items)
        if np.any(items == 0):
            raise ValueError(
                "`items` must hold one item of each user, from 1 to "
                f"`num_items`={model.num_items}. Received: {items.tolist()}"
            )
        model.check_timestamps(timestamps)
        times = None
        if timestamps is not None:
            seconds = whole_seconds(np.asarray(timestamps))
            new = _per_user("timestamps", seconds, len(state))
            times = [
                np.append(old, time)
                for old, time in zip(state.timestamps or (), new, strict=True)
            ]
        full = state.window_lengths == model.max_length
        lengths = np.where(full, state.restart_length, state.window_lengths + 1)
        state = dataclasses.replace(
            state,
            histories=[
                np.append(history, item)
                for history, item in zip(state.histories, items, strict=True)
            ],
            timestamps=times,
            window_lengths=lengths,
            states=state.states.copy(),
            log_precisions=(
                None
                if state.log_precisions is None
                else state.log_precisions.copy()
            ),
            caches=[
                {name: array.copy() for name, array in cache.items()}
                for cache in state.caches
            ],
        )
        going_on, restarting = np.flatnonzero(~full), np.flatnonzero(full)
        ones = np.ones(len(going_on), "int64")
        self._read(state, going_on, ones, batch_size)
        self._read(state, restarting, lengths[restarting], batch_size)
        return state

    def _read(
        self,
        state: UserState,
        users: np.ndarray,
        num_new: np.ndarray,
        batch_size: int,
    ) -> None:
        """Reads the newest items of some users into a state of our own."""
        num_held = state.window_lengths[users] - num_new
        # A step is of one item, whatever the lengths that histories pad to.
        goes_on = bool(np.any(num_held))
        largest = 1 if goes_on else self.recommender.max_length
        for chunk, length, rows in chunks_of_similar_length(
            num_new.tolist(), largest, batch_size
        ):
            which, counts = users[chunk], num_new[chunk]
            inputs: dict[str, Any] = {
                "items": _newest(state.histories, which, counts, length, rows),
                "num_held": _padded(num_held[chunk], rows).astype("int32"),
            }
            if state.timestamps is not None:
                times = {
                    user: relative_timestamps(state.timestamps[user])
                    for user in which
                }
                inputs["timestamps"] = _newest(
                    times, which, counts, length, rows
                )
            if goes_on:
                inputs["caches"] = [
                    {n: _padded(a[which], rows) for n, a in cache.items()}
                    for cache in state.caches
                ]
            outputs = self.encoder.predict_on_batch(inputs)
            state.states[which] = outputs["state"][: len(which)]
            if state.log_precisions is not None:
                precisions = outputs["log_precision"]
                state.log_precisions[which] = precisions[: len(which)]
            slots = num_held[chunk][:, None] + np.arange(length)
            for cache, new in zip(state.caches, outputs["caches"], strict=True):
                for name, array in cache.items():
                    array[which[:, None], slots] = new[name][: len(which)]

    def _check_state(self, state: UserState) -> None:
        shapes, expected = (
            [{name: a.shape[1:] for name, a in c.items()} for c in caches]
            for caches in (state.caches, self.empty)
        )
        if shapes != expected:
            raise ValueError(
                "`state` must come from `start` of a model with the same "
                f"arguments, whose caches hold {expected}. Received: a state "
                f"whose caches hold {shapes}"
            )


def empty_caches(recommender: Any) -> list[dict[str, np.ndarray]]:
    """Each layer's cache of no users, `(0, max_length, ...)`."""
    caches = []
    for block in recommender.blocks:
        cache = {}
        for name, like in block.make_cache(1, recommender.max_length).items():
            dtype = keras.backend.standardize_dtype(like.dtype)
            cache[name] = np.zeros((0, *like.shape[1:]), stored_dtype(dtype))
        caches.append(cache)
    return caches


def _per_user(name: str, values: Any, num_users: int) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype("int64")
    if array.shape != (num_users,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must hold one integer for each of the {num_users} users "
            f"of the state. Received: shape {array.shape} and dtype "
            f"{array.dtype}"
        )
    return array.astype("int64")


def _newest(
    sequences: Any,
    users: np.ndarray,
    counts: np.ndarray,
    length: int,
    rows: int,
) -> np.ndarray:
    """The newest `counts` entries of users, `(rows, length)` int32."""
    newest = [
        sequences[user][-count:]
        for user, count in zip(users, counts, strict=True)
    ]
    return padded_batch(newest, length, rows)


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    """The array with rows of zeros after it, itself if it has as many."""
    if len(array) == rows:
        return array
    padding = np.zeros((rows - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, padding])
