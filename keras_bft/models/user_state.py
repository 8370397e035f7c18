"""What a recommender keeps of its users, to go on from."""

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft._packed_files import read_npz
from keras_bft.models._state_arrays import state_of_arrays


@dataclasses.dataclass(frozen=True, eq=False)
class UserState:
    """Users' histories, with the keys and values that a model made of them.

    `start` of a causal recommender makes it and `append` returns the next one;
    `recommend` and `score` take it in place of histories. It belongs to the
    weights it was made with: after training, `start(state.histories)` again.

    All of it are NumPy arrays of whatever backend. It is read, never changed.
    A server keeps one for each user, which is `state[row]`, and joins those it
    has events of by `UserState.concatenate`. Every layer holds `max_length`
    slots of two vectors for each user (and their precisions), 52 kB with two
    layers of 64 channels and 50 slots.

    Args:
        histories: All items of each user, oldest first.
        timestamps: Their times in seconds, int64, if the model reads them.
        window_lengths: `(B,)` int64, the number of newest items, at most
            `max_length`, whose keys are held.
        states: `(B, D)` float32, the state after the newest item.
        caches: For each layer, arrays `(B, max_length, ...)` by name, as the
            layer's `make_cache` describes them; half precision is held in
            float32. The oldest item of a window is first.
        restart_length: Length of the window that follows a full one.
        log_precisions: `(B, D)` float32, the log-precision of the channels of
            `states`; `None` of a plain model. Defaults to `None`.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> state = model.start([[3, 5, 7], [2]])
    >>> state = model.append(state, [4, 6])
    >>> len(state), state.histories[1].tolist()
    (2, [2, 6])
    >>> import io
    >>> file = io.BytesIO()
    >>> state[1].save(file)
    >>> again = keras_bft.models.UserState.load(io.BytesIO(file.getvalue()))
    >>> ids, scores = model.recommend(again, k=4)
    >>> ids.shape
    (1, 4)
    """

    histories: Sequence[np.ndarray]
    timestamps: Sequence[np.ndarray] | None
    window_lengths: np.ndarray
    states: np.ndarray
    caches: Sequence[dict[str, np.ndarray]]
    restart_length: int
    log_precisions: np.ndarray | None = None

    @property
    def windows(self) -> list[np.ndarray]:
        """The newest items of each user, those that the model has read."""
        return [
            history[len(history) - length :]
            for history, length in zip(
                self.histories, self.window_lengths, strict=True
            )
        ]

    def __len__(self) -> int:
        return len(self.histories)

    def __getitem__(self, rows: Any) -> "UserState":
        """The state of some users: an index, a slice, indices or a mask."""
        users = np.atleast_1d(np.arange(len(self))[rows])
        times = self.timestamps
        return dataclasses.replace(
            self,
            histories=[self.histories[user] for user in users],
            timestamps=times and [times[user] for user in users],
            window_lengths=self.window_lengths[users],
            states=self.states[users],
            caches=[
                {name: array[users] for name, array in cache.items()}
                for cache in self.caches
            ],
            log_precisions=(
                None
                if self.log_precisions is None
                else self.log_precisions[users]
            ),
        )

    def __iter__(self) -> Iterator["UserState"]:
        return (self[user] for user in range(len(self)))

    @classmethod
    def concatenate(cls, states: Sequence["UserState"]) -> "UserState":
        """Joins states of one model into one.

        Args:
            states: At least one state.

        Raises:
            ValueError: If there are none, or they are of different models or
                have different restart lengths.
        """
        kinds = {state._kind() for state in states}
        if len(kinds) != 1:
            raise ValueError(
                "`states` must be one or more states of the same model, with "
                "the same `restart_length`. Received: "
                f"{len(states)} states of {len(kinds)} kinds"
            )
        times = None
        if states[0].timestamps is not None:
            times = [t for state in states for t in state.timestamps or ()]
        return cls(
            histories=[h for state in states for h in state.histories],
            timestamps=times,
            window_lengths=np.concatenate([s.window_lengths for s in states]),
            states=np.concatenate([state.states for state in states]),
            caches=[
                {
                    name: np.concatenate([cache[name] for cache in layer])
                    for name in layer[0]
                }
                for layer in zip(*(s.caches for s in states), strict=True)
            ],
            restart_length=states[0].restart_length,
            log_precisions=(
                None
                if states[0].log_precisions is None
                else np.concatenate([s.log_precisions for s in states])
            ),
        )

    def _kind(self) -> tuple[Any, ...]:
        """What all states of one model have in common."""
        return (
            self.restart_length,
            self.timestamps is None,
            self.log_precisions is None,
            self.states.shape[1:],
            tuple(
                (layer, name, array.shape[1:])
                for layer, cache in enumerate(self.caches)
                for name, array in sorted(cache.items())
            ),
        )

    def save(self, file: Any) -> None:
        """Writes the state as an `.npz` file.

        Args:
            file: Path that ends in `.npz`, or a binary file object.
        """
        arrays: dict[str, Any] = {
            "lengths": np.array([len(h) for h in self.histories], "int64"),
            "items": np.concatenate([np.empty(0, "int64"), *self.histories]),
            "window_lengths": self.window_lengths,
            "states": self.states,
            "restart_length": np.array(self.restart_length),
        }
        if self.log_precisions is not None:
            arrays["log_precisions"] = self.log_precisions
        if self.timestamps is not None:
            arrays["timestamps"] = np.concatenate(
                [np.empty(0, "int64"), *self.timestamps]
            )
        for layer, cache in enumerate(self.caches):
            for name, array in cache.items():
                arrays[f"cache/{layer}/{name}"] = array
        np.savez(file, **arrays)

    @classmethod
    def load(cls, file: Any) -> "UserState":
        """Reads what `save` wrote.

        Args:
            file: Path, or a binary file object.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is damaged, or its arrays do not fit together.
        """
        return cls(**state_of_arrays(read_npz(file)))
