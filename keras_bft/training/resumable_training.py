"""A training that can be killed at any point and continued."""

import json
import time
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bft.training.run_folder import replacing


class ResumableTraining(keras.callbacks.Callback):
    """Saves the whole state of `fit` after each epoch and restores it.

    The state is all variables of the model and the optimizer, those of the
    random generators included, the state of `EarlyStopping` with its best
    weights, and the history. `keras.callbacks.BackupAndRestore` keeps the
    weights and the optimizer alone. A training that continues gives, number
    for number, what it would have given without the interruption.

    Put this last in `callbacks`, and give `fit` a model that is built and
    `initial_epoch=epochs_done`. A `SequenceDataset` has to be told, too:
    `dataset.epoch = epochs_done`.

    Args:
        path: The checkpoint, an `.npz` file. Where it exists, the training
            continues from it. It is replaced once a new one is whole.
        stopping: The early stopping of the same `fit`, if there is one.

    Attributes:
        history: One dictionary an epoch: its number from 1, the logs, and the
            seconds it took, validation included.
        stopped: Whether the saved training had stopped early.

    Example:

    ```python
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg@10", mode="max", patience=8, restore_best_weights=True
    )
    training = keras_bft.training.ResumableTraining("checkpoint.npz", stopping)
    dataset.epoch = training.epochs_done
    model.fit(
        dataset,
        initial_epoch=training.epochs_done,
        epochs=training.epochs_done if training.stopped else 100,
        callbacks=[ranking, stopping, training],
    )
    ```
    """

    def __init__(
        self,
        path: str | PathLike[str],
        stopping: keras.callbacks.EarlyStopping | None = None,
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self.stopping = stopping
        self.history: list[dict[str, float]] = []
        self.stopped = False
        self._saved: dict[str, np.ndarray] = {}
        if self.path.exists():
            with np.load(self.path) as file:
                self._saved = dict(file)
            state = json.loads(str(self._saved.pop("state")))
            self.history = state["history"]
            self.stopped = state["stopped"]
            self._stopping_state = state["stopping"]
            if (stopping is None) != (self._stopping_state is None):
                raise ValueError(
                    "`stopping` must be given if it was when the training "
                    f"began, and only then. Received: stopping={stopping!r}, "
                    f"and {str(self.path)!r} of a training "
                    f"{'without' if stopping else 'with'} it"
                )

    @property
    def epochs_done(self) -> int:
        """Number of epochs finished, those before the interruption too."""
        return len(self.history)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the state, after `EarlyStopping` has reset its own."""
        if not self._saved:
            return
        variables = self._variables()
        for index, variable in enumerate(variables):
            variable.assign(self._saved[f"variable_{index}"])
        if self.stopping is not None:
            for name, value in self._stopping_state.items():
                setattr(self.stopping, name, value)
            self.stopping.best_weights = [
                self._saved[f"best_{index}"]
                for index in range(len(self._saved) - len(variables))
            ]
        self._saved = {}

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Saves the state."""
        row: dict[str, float] = {"epoch": epoch + 1}
        row |= {name: float(value) for name, value in (logs or {}).items()}
        row["seconds"] = time.perf_counter() - self._start
        self.history.append(row)
        state = {
            "history": self.history,
            "stopped": self.model.stop_training,
            "stopping": _stopping_state(self.stopping),
        }
        arrays = {
            f"variable_{index}": keras.ops.convert_to_numpy(variable.value)
            for index, variable in enumerate(self._variables())
        }
        best = getattr(self.stopping, "best_weights", None)
        for index, weight in enumerate(best or []):
            arrays[f"best_{index}"] = weight
        with replacing(self.path) as part, part.open("wb") as file:
            np.savez(file, state=json.dumps(state), **arrays)

    def _variables(self) -> list[Any]:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        return self.model.variables + optimizer.variables


def _stopping_state(
    stopping: keras.callbacks.EarlyStopping | None,
) -> dict[str, Any] | None:
    if stopping is None:
        return None
    return {
        "wait": stopping.wait,
        "best": float(stopping.best),
        "best_epoch": stopping.best_epoch,
        "stopped_epoch": stopping.stopped_epoch,
    }
