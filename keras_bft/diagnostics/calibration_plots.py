"""Pictures of confidence. They need matplotlib, the extra `viz`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bft.diagnostics._figure import finished
from keras_bft.diagnostics._figure import line_style
from keras_bft.diagnostics._figure import make_axes
from keras_bft.evaluation.reliability import ReliabilityCurve
from keras_bft.evaluation.risk_coverage import RiskCoverageCurve


def plot_reliability(
    curves: Mapping[str, ReliabilityCurve], axes: Any = None
) -> Any:
    """Plots the share of hits against the confidence that was stated.

    On the dashed line what was stated came true; below it the model was too
    sure. Bars are one standard error of a share of hits. Both axes show the
    part from 0 to 1 where the bins are.

    Args:
        curves: What `reliability_curve` returned, by what the legend says.
            Empty bins are left out.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Example:

    ```python
    ids, _, confidence = model.recommend(
        histories, k=10, return_confidence=True)
    hits = (ids == targets[:, None]).any(axis=1)
    curve = keras_bft.evaluation.reliability_curve(
        confidence.lists, hits, binning="mass")
    keras_bft.diagnostics.plot_reliability({"BFT": curve})
    ```
    """
    axes = make_axes(axes)
    ends = []
    for place, (name, curve) in enumerate(curves.items()):
        held = curve.counts > 0
        stated, came = curve.confidence[held], curve.accuracy[held]
        error = np.sqrt(came * (1 - came) / curve.counts[held])
        axes.errorbar(
            stated,
            came,
            yerr=error,
            label=name,
            elinewidth=0.8,
            **line_style(place),
        )
        ends += [*stated, *(came - error), *(came + error)]
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    margin = 0.05 * (max(ends) - min(ends))
    limits = max(min(ends) - margin, 0.0), min(max(ends) + margin, 1.02)
    axes.set_xlim(limits)
    axes.set_ylim(limits)
    axes.set_xlabel("stated probability of a hit")
    axes.set_ylabel("share of hits")
    axes.set_aspect("equal")
    return finished(axes)


def plot_risk_coverage(
    curves: Mapping[str, RiskCoverageCurve], axes: Any = None
) -> Any:
    """Plots the share of misses against how many answers are kept.

    The share of misses among very few is mostly chance. The axis is set to
    those from 2 % kept on, so lines may leave it at the left.

    Args:
        curves: What `risk_coverage` returned, by what the legend says, with
            their areas.
        axes: Where to plot. Defaults to new axes.

    Returns:
        The matplotlib axes.

    Example:

    ```python
    curve = keras_bft.evaluation.risk_coverage(confidence.lists, hits)
    keras_bft.diagnostics.plot_risk_coverage({"BFT": curve})
    ```
    """
    axes = make_axes(axes)
    for place, (name, curve) in enumerate(curves.items()):
        axes.plot(
            curve.coverage,
            curve.risk,
            label=f"{name}, area {curve.area:.3f}",
            color=line_style(place)["color"],
            linestyle=("-", "--", ":")[place // 6 % 3],
        )
    settled = [c.risk[c.coverage >= 0.02] for c in curves.values()]
    low, high = min(map(np.min, settled)), max(map(np.max, settled))
    margin = 0.05 * max(high - low, 0.01)
    axes.set_xlim(0, 1)
    axes.set_ylim(max(low - margin, -0.02), min(high + margin, 1.02))
    axes.set_xlabel("share kept, the most confident first")
    axes.set_ylabel("share of misses among them")
    return finished(axes)
