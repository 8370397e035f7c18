"""Gain and precision of every layer while a model trains."""

import csv
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bft.diagnostics._padding import real_tokens
from keras_bft.diagnostics.trace import trace
from keras_bft.layers._filter_layer import check_positive
from keras_bft.training._collapse import find_collapse
from keras_bft.training._jax_state import fill_variables
from keras_bft.training.run_folder import replacing

_VALUES = (
    "gain",
    "prior_log_precision",
    "observation_log_precision",
    "log_precision",
    "log_process_noise",
)
_COLUMNS = ("epoch", "batch", "layer", "gain", "log_precision")


class PrecisionMonitor(keras.callbacks.Callback):
    """Logs gain and log-precision of each filter layer, and warns of collapse.

    After each epoch the model reads one fixed probe batch, without dropout,
    and two numbers a layer go into the epoch's `logs`: `gain/<layer>`, the
    mean Kalman gain, and `log_precision/<layer>`, the mean natural
    log-precision after the update. The layer is named by its path in the
    model. Keras calls callbacks in the order they are given: put this one
    before `CSVLogger`, `TensorBoard`, `EarlyStopping` and
    `ResumableTraining`, which then see the numbers; `History` and the
    progress bar come last of themselves. TensorBoard groups them by what
    stands before the slash.

    A `UserWarning` names the layer, once for each of these in a training:

    - values that are not finite;
    - a gain stuck at 0, where nothing observed reaches the state, or at 1,
      where the filter does nothing: 99 % of the gains are within `tolerance`
      of it. A gain of 1 is judged as if the strength were one, and not at all
      at strength 0, where it is what was asked for;
    - a log-precision at its bounds: 99 % of those predicted are within
      `tolerance` of the process noise, which then alone decides them, or of
      those updated beyond the range of float32, `exp(-80)` to `exp(80)`.

    The probe costs one eager call for each epoch, and one before the first;
    between them nothing is done. The monitor has no state that a continued
    training needs: with `initial_epoch` it goes on, and rows of the CSV file
    from epochs that are trained again are replaced.

    Args:
        inputs: The probe: one batch of the model's inputs, some dozens of
            examples of different lengths. Kept as it is.
        padding_mask: `(B, T)`, true at real tokens, the only ones that count.
            Defaults to the entry of that name in `inputs`, or to all; of a
            recommender give `items != 0`.
        path: A CSV file with a row for each layer and reading: `epoch` (from
            1), `batch` (batches trained in this epoch), `layer`, `gain`,
            `log_precision`. Written whole after each epoch. Defaults to none.
        every: Number of batches after which the probe is read within an
            epoch, too, for the CSV file and the warnings. `None` (default)
            reads it after epochs alone.
        tolerance: How near a gain or log-precision must be to a bound to count
            as stuck there. Defaults to `1e-3`.
        **kwargs: Other arguments of the model's call.

    Raises:
        ValueError: If an argument is outside its domain. When a training
            begins, if the model has no filter layer, `padding_mask` has
            another shape than the probe, or `path` is another file.

    Example:

    >>> items = np.array([[3, 5, 7, 0], [2, 4, 0, 0]])
    >>> model = keras_bft.models.SASRec(9, max_length=4, embedding_dim=8)
    >>> model.compile("adam", loss=keras_bft.losses.FullSoftmax())
    >>> monitor = keras_bft.training.PrecisionMonitor(
    ...     items, padding_mask=items != 0)
    >>> data = keras_bft.data.SequenceDataset([[3, 5, 7], [2, 4, 1]])
    >>> history = model.fit(data, verbose=0, callbacks=[monitor])
    >>> sorted(name for name in history.history if name.startswith("gain"))
    ['gain/block_0', 'gain/block_1']

    References:
        - [Bayesian Filtering Transformers](https://arxiv.org/abs/2605.18832),
          whose gains these are.
        - [Kalman, 1960](https://doi.org/10.1115/1.3662552)
    """

    def __init__(
        self,
        inputs: Any,
        padding_mask: Any = None,
        path: str | PathLike[str] | None = None,
        every: int | None = None,
        tolerance: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if every is not None:
            check_positive("every", every)
        if not 0 < tolerance < 0.5:
            raise ValueError(
                "`tolerance` must be above 0 and below 0.5. "
                f"Received: tolerance={tolerance}"
            )
        self.inputs = inputs
        self.padding_mask = padding_mask
        self.path = None if path is None else Path(path)
        self.every = every
        self.tolerance = tolerance
        self.call_arguments = kwargs
        # Keras need not wait for a batch to call what only counts.
        self.async_safe = every is None
        self._rows: list[dict[str, Any]] = []
        self._warned: set[tuple[str, str]] = set()
        self._means: dict[str, tuple[float, float]] = {}
        self._epoch = self._read_at = 0
        self._ended: list[int] = []

    @property
    def _batches(self) -> int:
        """Number of batches trained in the epoch."""
        return max(self._ended, default=0)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reads the rows of earlier epochs, and tries the probe."""
        self._warned = set()
        self._rows = []
        if self.path is not None and self.path.exists():
            self._rows = _read_rows(self.path)
        # A probe that does not fit is better known before the first epoch.
        self._probe()

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Drops the rows of epochs that are trained again."""
        self._epoch, self._ended, self._read_at = epoch + 1, [], 0
        self._rows = [r for r in self._rows if int(r["epoch"]) < self._epoch]

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Reads the probe every so many batches."""
        if self.every is None:
            # Keras may call this in threads, and then in any order.
            self._ended.append(batch + 1)
            return
        before, self._ended = self._batches, [batch + 1]
        # With `steps_per_execution` several batches end at a time.
        if before // self.every < self._batches // self.every:
            fill_variables(self.model)
            self._read()
            self._read_at = self._batches

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Adds the means of each layer to `logs` and writes the file."""
        if not self._batches or self._read_at < self._batches:
            self._read()
        if logs is not None:
            for place, name in enumerate(("gain", "log_precision")):
                for layer, values in self._means.items():
                    logs[f"{name}/{layer}"] = values[place]
        if self.path is not None:
            with replacing(self.path) as part, part.open("w", newline="") as f:
                writer = csv.DictWriter(f, _COLUMNS)
                writer.writeheader()
                writer.writerows(self._rows)

    def _read(self) -> None:
        """Keeps the means of each layer, and warns."""
        self._means = {}
        for layer, values in self._probe().items():
            self._warn(layer, values)
            gain, log_precision = (
                float(values[name].mean(dtype="float64"))
                for name in ("gain", "posterior_log_precision")
            )
            self._means[layer] = gain, log_precision
            row = (self._epoch, self._batches, layer, gain, log_precision)
            self._rows.append(dict(zip(_COLUMNS, row, strict=True)))

    def _probe(self) -> dict[str, dict[str, np.ndarray]]:
        """What each layer computes for the real tokens, `(N, D)`."""
        traced = trace(
            self.model, self.inputs, values=_VALUES, **self.call_arguments
        )
        layers = {}
        for (path, call), values in traced.by_layer().items():
            if "gain" not in values:
                continue
            shape = values["gain"].shape[:2]
            real = real_tokens(self.inputs, self.padding_mask, shape)
            layers[f"{path}:{call}" if call else path] = {
                name: x if name == "log_process_noise" else x[real]
                for name, x in values.items()
            }
        if not layers:
            raise ValueError(
                "The model must have a filter layer whose gain can be "
                f"watched. Received: a model named {self.model.name!r}"
            )
        return layers

    def _warn(self, layer: str, values: dict[str, np.ndarray]) -> None:
        for kind, what in find_collapse(values, self.tolerance).items():
            if (layer, kind) in self._warned:
                continue
            self._warned.add((layer, kind))
            warnings.warn(
                f"The layer {layer!r} {what} (epoch {self._epoch}, after "
                f"{self._batches} batches).",
                stacklevel=2,
            )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that an earlier monitor wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            columns, *rows = list(csv.reader(file)) or [[]]
        if tuple(columns) != _COLUMNS:
            raise ValueError(f"with the columns {columns!r:.200}")
        for epoch, batch, _, gain, log_precision in rows:
            _ = int(epoch), int(batch), float(gain), float(log_precision)
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    except (ValueError, csv.Error) as error:
        raise ValueError(
            "`path` must be a file that a PrecisionMonitor wrote, or a new "
            f"one. Received: path={str(path)!r} {error!s:.300}"
        ) from error
