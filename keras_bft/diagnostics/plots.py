"""Pictures of sinks, context curves and ROC. They need the extra `viz`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bft.diagnostics._figure import finished
from keras_bft.diagnostics._figure import line_style
from keras_bft.diagnostics._figure import make_axes
from keras_bft.diagnostics.context_length import ContextCurve
from keras_bft.diagnostics.roc import RocCurve


def plot_attention_sinks(
    sinks: Mapping[str, Mapping[str, np.ndarray]], axes: Any = None
) -> Any:
    """Plots the share of attention on the first token by layer.

    Args:
        sinks: What `attention_sinks` returned, by the name of the model. A
            line is the mean over heads, the band their range.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Example:

    ```python
    before = keras_bft.diagnostics.attention_sinks(lm, inputs)
    axes = keras_bft.diagnostics.plot_attention_sinks({"before": before})
    axes.figure.savefig("sinks.png")
    ```
    """
    axes = make_axes(axes)
    for place, (label, layers) in enumerate(sinks.items()):
        heads = list(layers.values())
        x = np.arange(len(heads))
        style = line_style(place)
        axes.plot(x, [share.mean() for share in heads], label=label, **style)
        axes.fill_between(
            x,
            [share.min() for share in heads],
            [share.max() for share in heads],
            color=style["color"],
            alpha=0.15,
            linewidth=0,
        )
    axes.set_xlabel("layer")
    axes.set_ylabel("share of attention on the first token")
    axes.set_ylim(0, 1)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return finished(axes)


def plot_context_curves(
    curves: Mapping[str, ContextCurve], label: str, axes: Any = None
) -> Any:
    """Plots a value against the number of visible tokens.

    Args:
        curves: Curves of `by_context_length`, by what the legend says.
        label: What the value is, such as `"mean Kalman gain K"`.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Example:

    ```python
    curves = keras_bft.diagnostics.by_context_length(lm, inputs)
    gains = {n: c for n, c in curves.items() if n.endswith("gain")}
    keras_bft.diagnostics.plot_context_curves(gains, "mean Kalman gain K")
    ```
    """
    axes = make_axes(axes)
    for place, (name, curve) in enumerate(curves.items()):
        axes.plot(curve.visible, curve.mean, label=name, **line_style(place))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("visible tokens, from")
    axes.set_ylabel(label)
    return finished(axes)


def plot_roc(curves: Mapping[str, RocCurve], axes: Any = None) -> Any:
    """Plots ROC curves with their areas.

    Args:
        curves: What `roc_curve` returned, by what the legend says.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Example:

    ```python
    scores = lm.score(noisy_ids)
    curve = keras_bft.diagnostics.roc_curve(-scores.log_precision, corrupted)
    keras_bft.diagnostics.plot_roc({"BFT": curve})
    ```
    """
    axes = make_axes(axes)
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for place, (name, curve) in enumerate(curves.items()):
        axes.plot(
            curve.false_positive_rate,
            curve.true_positive_rate,
            label=f"{name}, area {curve.auc:.3f}",
            color=line_style(place)["color"],
        )
    axes.set_xlabel("share of right tokens flagged")
    axes.set_ylabel("share of corrupted tokens flagged")
    axes.set_aspect("equal")
    return finished(axes)
