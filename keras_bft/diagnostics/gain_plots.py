"""Pictures of the gain by item count, position and layer."""

from typing import Any

import numpy as np

from keras_bft.diagnostics._figure import COLORS
from keras_bft.diagnostics._figure import finished
from keras_bft.diagnostics._figure import layer_styles
from keras_bft.diagnostics._figure import line_style
from keras_bft.diagnostics._figure import make_axes
from keras_bft.diagnostics._padding import real_tokens
from keras_bft.diagnostics.trace import Trace

LABELS = {
    "gain": "Kalman gain K",
    "gate": "attention gate",
    "effective_sample_size": "effective sample size",
    "prior_log_precision": "log-precision before the update",
    "observation_log_precision": "log-precision of the observation",
    "posterior_log_precision": "log-precision after the update",
    "predicted_log_precision": "log-precision handed on",
    "log_process_noise": "log process noise",
}


def plot_by_count(
    traced: Trace,
    counts: Any,
    padding_mask: Any = None,
    value: str = "gain",
    axes: Any = None,
) -> Any:
    """Plots the gain of each layer by how often the item was seen.

    A point is the mean over the tokens whose item was seen from `2^k` to
    `2^(k+1) - 1` times, the band 1.96 standard errors over tokens. Of more
    than six layers there are no bands.

    Args:
        traced: What `trace` returned.
        counts: `(B, T)`: how often the item of each token is in the training
            data, such as `item_counts[items]`.
        padding_mask: `(B, T)`, true at real tokens. Defaults to all.
        value: Another column of `Trace.to_dataframe`, such as
            `"prior_log_precision"`. Defaults to `"gain"`.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Raises:
        ValueError: If an array has another shape, a count is negative, or no
            layer has the value.

    Example:

    ```python
    traced = keras_bft.diagnostics.trace(model, items)
    axes = keras_bft.diagnostics.plot_by_count(
        traced, item_counts[items], padding_mask=items != 0
    )
    axes.figure.savefig("gain_by_count.png")
    ```
    """
    layers, real = _token_values(traced, value, padding_mask)
    counts = np.asarray(counts)
    if counts.shape != real.shape or np.any(counts[real] < 0):
        raise ValueError(
            f"`counts` must be zero or more, of the shape {real.shape}. "
            f"Received: counts of the shape {counts.shape}"
        )
    # Exponents of a binary number, exact: 0 for none, 1 for one, 2 for two
    # and three, and so on.
    group = np.frexp(counts[real].astype("float64"))[1]
    groups = np.unique(group)
    axes = _plot_lines(
        layers, real, group, groups, np.arange(len(groups)), axes
    )
    lower = np.where(groups > 0, 2.0 ** (groups - 1), 0).astype("int64")
    axes.set_xticks(np.arange(len(groups)), [f"{x:,}" for x in lower])
    axes.set_xlabel("times the item was seen in training, from")
    return _labelled(axes, value, len(layers))


def plot_by_position(
    traced: Trace,
    padding_mask: Any = None,
    value: str = "gain",
    axes: Any = None,
) -> Any:
    """Plots the gain of each layer by the position in the sequence.

    A point is the mean over sequences, the band 1.96 standard errors, left
    out for more than six layers. Real tokens are counted from 1, wherever the
    padding is.

    Args:
        traced: What `trace` returned.
        padding_mask: `(B, T)`, true at real tokens. Defaults to all.
        value: Another column of `Trace.to_dataframe`. Defaults to `"gain"`.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Raises:
        ValueError: If the mask has another shape, or no layer has the value.

    Example:

    ```python
    traced = keras_bft.diagnostics.trace(model, items)
    keras_bft.diagnostics.plot_by_position(traced, padding_mask=items != 0)
    ```
    """
    layers, real = _token_values(traced, value, padding_mask)
    position = np.cumsum(real, axis=1)[real]
    groups = np.unique(position)
    axes = _plot_lines(layers, real, position, groups, groups, axes)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("position in the sequence, from 1")
    return _labelled(axes, value, len(layers))


def plot_by_layer(
    traced: Trace,
    padding_mask: Any = None,
    value: str = "gain",
    label: str | None = None,
    axes: Any = None,
) -> Any:
    """Plots the gain by layer.

    A point is the median over tokens, the band reaches from their 10 % to
    their 90 % quantile. Call it again with the same axes and another `label`
    to compare models.

    Args:
        traced: What `trace` returned.
        padding_mask: `(B, T)`, true at real tokens. Defaults to all.
        value: Another column of `Trace.to_dataframe`. Defaults to `"gain"`.
        label: What the legend says. Defaults to no legend.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Raises:
        ValueError: If the mask has another shape, or no layer has the value.

    Example:

    ```python
    axes = keras_bft.diagnostics.plot_by_layer(before, label="before")
    keras_bft.diagnostics.plot_by_layer(after, label="after", axes=axes)
    ```
    """
    layers, real = _token_values(traced, value, padding_mask)
    axes = make_axes(axes)
    style = line_style(len(axes.get_lines()))
    low, middle, high = np.quantile(
        [x[real] for x in layers.values()], [0.1, 0.5, 0.9], axis=1
    )
    place = np.arange(len(layers))
    axes.plot(place, middle, label=label, **style)
    axes.fill_between(
        place, low, high, color=style["color"], alpha=0.15, linewidth=0
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("layer")
    return _labelled(axes, value, 0)


def _token_values(
    traced: Trace, value: str, padding_mask: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A value of each layer that has it, `(B, T)`, and where tokens are."""
    means = traced.token_means()
    layers = {
        f"{path}, call {call}" if call else path: columns[value]
        for (path, call), columns in means.items()
        if value in columns
    }
    if not layers:
        known = sorted(set().union(*means.values()))
        hint = ""
        if "gain" not in known:
            hint = (
                " Gain and precision are those of filter layers, which a model "
                "with `bayesian=True` has."
            )
        raise ValueError(
            f"`value` must be one of those in the trace, {known}.{hint} "
            f"Received: value={value!r}"
        )
    shape = next(iter(layers.values())).shape
    return layers, real_tokens(None, padding_mask, shape)


def _plot_lines(
    layers: dict[str, np.ndarray],
    real: np.ndarray,
    group: np.ndarray,
    groups: np.ndarray,
    place: np.ndarray,
    axes: Any,
) -> Any:
    """A line a layer through the means of groups of tokens."""
    axes = make_axes(axes)
    index = np.searchsorted(groups, group)
    number = np.bincount(index)
    for (name, values), style in zip(
        layers.items(), layer_styles(len(layers)), strict=True
    ):
        x = values[real].astype("float64")
        mean = np.bincount(index, x) / number
        variance = np.bincount(index, (x - mean[index]) ** 2) / number
        error = 1.96 * np.sqrt(variance / number)
        axes.plot(place, mean, label=name, **style)
        if len(layers) <= len(COLORS):
            axes.fill_between(
                place,
                mean - error,
                mean + error,
                color=style["color"],
                alpha=0.15,
                linewidth=0,
            )
    return axes


def _labelled(axes: Any, value: str, number_of_layers: int) -> Any:
    axes.set_ylabel(LABELS.get(value, value))
    if value == "gain":
        axes.set_ylim(0, 1)
    return finished(axes, number_of_layers)
