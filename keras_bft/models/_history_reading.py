"""Histories, read into the states that score the next item."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bft.data.timestamps import flatten_timestamps
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import chunks_of_similar_length
from keras_bft.models._histories import padded_batch
from keras_bft.models._item_training import ItemTraining
from keras_bft.models.user_state import UserState


class HistoryReading(ItemTraining):
    """The part of a recommender that reads histories."""

    max_length: int
    embedding_dim: int

    @property
    def has_precision(self) -> bool:
        """Whether states have a precision, which `"mean_field"` reads."""
        return False

    def predict_precisely(
        self, inputs: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """States that score and their log-precision, see `PreciseEncoder`."""
        raise NotImplementedError

    def _read(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int,
        timestamps: Sequence[Any] | None,
        precise: bool,
    ) -> tuple[Sequence[np.ndarray], np.ndarray, np.ndarray | None]:
        """Checked histories, and the state after each, `(n, D)` float32.

        With `precise` also the log-precision of its channels, else `None`.
        """
        if isinstance(histories, UserState):
            self._check_user_state(histories, timestamps, precise)
            precisions = histories.log_precisions if precise else None
            return histories.histories, histories.states, precisions
        arrays = check_histories(histories, self.num_items)
        columns = [[self._input_ids(array) for array in arrays]]
        self.check_timestamps(timestamps)
        if timestamps is not None:
            ends = np.cumsum([len(array) for array in arrays])
            times = flatten_timestamps(timestamps, np.diff(ends, prepend=0))
            columns.append(np.split(times, ends[:-1]))
        states = np.zeros((len(arrays), self.embedding_dim), "float32")
        log_precisions = np.zeros_like(states) if precise else None
        lengths = [min(len(ids), self.max_length) for ids in columns[0]]
        for users, length, rows in chunks_of_similar_length(
            lengths, self.max_length, batch_size
        ):
            batch = [
                padded_batch([column[user] for user in users], length, rows)
                for column in columns
            ]
            last = np.array(lengths)[users] - 1
            if log_precisions is not None:
                names = ("items", "timestamps")
                inputs = dict(zip(names, batch, strict=False))
                inputs["last"] = np.zeros(rows, "int32")
                inputs["last"][: len(users)] = last
                output, precision = self.predict_precisely(inputs)
                states[users] = output[: len(users)]
                log_precisions[users] = precision[: len(users)]
                continue
            output = self.predict_on_batch(
                tuple(batch) if len(batch) > 1 else batch[0]
            )
            output = ops.convert_to_numpy(output)
            states[users] = output[np.arange(len(users)), last]
        return arrays, states, log_precisions

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

    def _check_user_state(
        self, state: UserState, timestamps: Any, precise: bool
    ) -> None:
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
        if precise and state.log_precisions is None:
            raise ValueError(
                "A `UserState` must be made by this model to have the "
                "precision that is asked for. Received: log_precisions=None"
            )

    def _input_ids(self, history: np.ndarray) -> np.ndarray:
        """Ids that the model reads; the last one's state gives the scores."""
        return history
