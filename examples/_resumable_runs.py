"""Training runs that can be killed at any point and continued."""

import contextlib
import csv
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from typing import Any

import keras
import numpy as np


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that takes its place only once it is written whole."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "wb") as file:
        yield file
    part.replace(path)


def fingerprint(*arrays: np.ndarray) -> str:
    """Returns a short text that changes when any number does."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def claim_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Makes an output folder for these settings, or checks that it is theirs.

    Args:
        folder: Folder of all runs. It is made where it does not exist.
        settings: What the results depend on, as JSON can hold it.

    Raises:
        ValueError: If the folder holds runs with other settings.
    """
    path = folder / "settings.json"
    settings = json.loads(json.dumps(settings))
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(settings, indent=2).encode())
        return
    earlier = json.loads(path.read_text())
    changed = [
        f"{name} was {earlier.get(name)!r} and now is {settings.get(name)!r}"
        for name in sorted(earlier | settings)
        if earlier.get(name) != settings.get(name)
    ]
    if changed:
        raise ValueError(
            f"The folder {str(folder)!r} holds runs with other settings: "
            f"{'; '.join(changed)}. Go back to those, give another folder, or "
            "delete this one."
        )


class ResumableTraining(keras.callbacks.Callback):
    """Saves the whole state of `fit` after each epoch and restores it.

    The state is all variables of the model and the optimizer, those of the
    random generators included, the state of `EarlyStopping` with its best
    weights, and the history. `keras.callbacks.BackupAndRestore` keeps the
    weights and the optimizer alone. A training that continues gives, number
    for number, what it would have given without the interruption.

    Put this last in `callbacks`, and give `fit` a model that is built and
    `initial_epoch=epochs_done`.

    Args:
        path: The checkpoint, an `.npz` file. Where it exists, the training
            continues from it.
        stopping: The early stopping of the same `fit`.
    """

    def __init__(
        self, path: Path, stopping: keras.callbacks.EarlyStopping
    ) -> None:
        super().__init__()
        self.path = path
        self.stopping = stopping
        self.history: list[dict[str, float]] = []
        self.stopped = False
        self._saved: dict[str, np.ndarray] = {}
        if path.exists():
            with np.load(path) as file:
                self._saved = dict(file)
            state = json.loads(str(self._saved.pop("state")))
            self.history = state["history"]
            self.stopped = state["stopped"]
            self._stopping_state = state["stopping"]

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
        stopping = self.stopping
        state = {
            "history": self.history,
            "stopped": self.model.stop_training,
            "stopping": {
                "wait": stopping.wait,
                "best": float(stopping.best),
                "best_epoch": stopping.best_epoch,
                "stopped_epoch": stopping.stopped_epoch,
            },
        }
        arrays = {
            f"variable_{index}": keras.ops.convert_to_numpy(variable.value)
            for index, variable in enumerate(self._variables())
        }
        for index, weight in enumerate(stopping.best_weights):
            arrays[f"best_{index}"] = weight
        with replacing(self.path) as file:
            np.savez(file, state=json.dumps(state), **arrays)

    def _variables(self) -> list[Any]:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        return self.model.variables + optimizer.variables


def write_history(history: list[dict[str, float]], path: Path) -> None:
    """Writes one line an epoch; seconds are of training and validation."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(history[0]))
        writer.writeheader()
        writer.writerows(history)


def read_history(path: Path) -> list[dict[str, float]]:
    """Reads what `write_history` wrote."""
    with open(path, newline="") as file:
        return [
            {name: float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]
