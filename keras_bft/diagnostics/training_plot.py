"""A picture of a training: losses, and the gain of each layer."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft.diagnostics._figure import finished
from keras_bft.diagnostics._figure import layer_styles
from keras_bft.diagnostics._figure import line_style
from keras_bft.diagnostics._figure import make_stack

_GAIN = "gain/"


def plot_training(
    history: Any,
    losses: Sequence[str] | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Plots the losses of a training and, below, the gain of each layer.

    The gains are those that `keras_bft.training.PrecisionMonitor` logs; where
    there are none, the losses stand alone.

    Args:
        history: What `fit` returned, its `history`, or a list with a
            dictionary for each epoch: `ResumableTraining.history`, or what
            `keras_bft.training.read_history` read.
        losses: Names of what is plotted above. Defaults to every name that
            ends in `loss`.
        axes: Where to plot, two axes (one without gains). Defaults to new
            axes.

    Returns:
        The matplotlib axes, an array of two (or one).

    Raises:
        ValueError: If the history has no epoch, or lacks a name.

    Example:

    ```python
    monitor = keras_bft.training.PrecisionMonitor(items, items != 0)
    history = model.fit(dataset, epochs=20, callbacks=[monitor])
    axes = keras_bft.diagnostics.plot_training(history)
    axes[0].figure.savefig("training.png")
    ```
    """
    columns = _columns(history)
    if losses is None:
        losses = [name for name in columns if name.endswith("loss")]
    missing = [name for name in losses if name not in columns]
    if missing or not losses or not len(columns[losses[0]]):
        raise ValueError(
            "`history` must have an epoch with the names of `losses`. "
            f"Received: losses={list(losses)}, a history of {list(columns)}"
        )
    epochs = columns.get("epoch", np.arange(1, len(columns[losses[0]]) + 1))
    gains = {
        name.removeprefix(_GAIN): values
        for name, values in columns.items()
        if name.startswith(_GAIN)
    }
    heights = [1.0, 1.0] if gains else [1.0]
    axes = make_stack(axes, heights, 5.0 if gains else 3.2)
    for place, name in enumerate(losses):
        axes[0].plot(epochs, columns[name], label=name, **line_style(place))
    axes[0].set_ylabel("loss")
    finished(axes[0])
    if gains:
        styles = layer_styles(len(gains))
        for (name, values), style in zip(gains.items(), styles, strict=True):
            axes[1].plot(epochs, values, label=name, **style)
        axes[1].set_ylabel("mean Kalman gain K")
        axes[1].set_ylim(0, 1)
        finished(axes[1], len(gains))
    axes[-1].set_xlabel("epoch")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return axes


def _columns(history: Any) -> dict[str, np.ndarray]:
    """Values of all epochs by name."""
    columns = getattr(history, "history", history)
    if not isinstance(columns, Mapping):
        names = dict.fromkeys(name for row in columns for name in row)
        columns = {
            name: [row.get(name, np.nan) for row in columns] for name in names
        }
    return {name: np.asarray(x, "float64") for name, x in columns.items()}
