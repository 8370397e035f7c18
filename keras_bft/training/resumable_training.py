"""A training that can be killed at any point and continued."""

import json
import time
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bft._json_files import parse_json
from keras_bft._packed_files import read_npz
from keras_bft.training.run_folder import replacing

_STOPPING = {"wait", "best", "best_epoch", "stopped_epoch"}


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

    Raises:
        ValueError: If `path` is damaged or not what was saved, is of another
            model or optimizer (when the training begins; no weight has changed
            then), or of a training with early stopping and this has none.

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
            self._saved = read_npz(self.path)
            text = str(self._saved.pop("state", ""))
            state = parse_json(text.encode("utf-8", "replace"), self.path)
            _check_state(state, self.path)
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
        values = self._arrays("variable", [v.shape for v in variables])
        best: list[np.ndarray] = []
        if len(self._saved) > len(variables):
            weights = self.model.weights
            best = self._arrays("best", [weight.shape for weight in weights])
        if len(self._saved) != len(values) + len(best):
            raise self._other_model(f"{len(self._saved)} arrays")
        # Nothing has changed until here.
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        if self.stopping is not None:
            for name, value in self._stopping_state.items():
                setattr(self.stopping, name, value)
            self.stopping.best_weights = best or None
        self._saved = {}

    def _arrays(self, kind: str, shapes: list[Any]) -> list[np.ndarray]:
        """Saved arrays of one kind, if they are numbers of these shapes."""
        arrays = []
        for index, shape in enumerate(shapes):
            name = f"{kind}_{index}"
            array = self._saved.get(name)
            if array is None or array.dtype.kind not in "biuf":
                raise self._other_model(f"no numbers {name!r}")
            if array.shape != tuple(shape):
                raise self._other_model(
                    f"{name!r} of shape {array.shape} instead of {tuple(shape)}"
                )
            arrays.append(array)
        return arrays

    def _other_model(self, found: str) -> ValueError:
        return ValueError(
            "`path` must be the checkpoint of the same model with the same "
            f"optimizer. Received: path={str(self.path)!r} with {found}"
        )

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
        arrays: dict[str, Any] = {
            f"variable_{index}": _storable(variable.value)
            for index, variable in enumerate(self._variables())
        }
        best = getattr(self.stopping, "best_weights", None)
        for index, weight in enumerate(best or []):
            arrays[f"best_{index}"] = _storable(weight)
        with replacing(self.path) as part, part.open("wb") as file:
            np.savez(file, state=json.dumps(state), **arrays)

    def _variables(self) -> list[Any]:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        return self.model.variables + optimizer.variables


def _storable(value: Any) -> np.ndarray:
    """An array of a dtype that NPZ has; bfloat16 is exact in float32."""
    array = keras.ops.convert_to_numpy(value)
    return array if array.dtype.kind in "biuf" else array.astype("float32")


def _check_state(state: dict[str, Any], path: Path) -> None:
    history, stopping = state.get("history"), state.get("stopping")
    numbers = [stopping] if isinstance(stopping, dict) else []
    is_whole = (
        set(state) == {"history", "stopped", "stopping"}
        and isinstance(state["stopped"], bool)
        and isinstance(history, list)
        and (
            stopping is None or set(numbers[0] if numbers else ()) == _STOPPING
        )
        and all(isinstance(row, dict) for row in history)
        and all(
            isinstance(value, int | float)
            for row in (*history, *numbers)
            for value in row.values()
        )
    )
    if not is_whole:
        raise ValueError(
            "The checkpoint must hold what ResumableTraining saved. Received: "
            f"path={str(path)!r} with state={state!r:.200}"
        )


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
