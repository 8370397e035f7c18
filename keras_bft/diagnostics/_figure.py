"""How the pictures look: size, colours, legends."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft._extras import import_extra

# Okabe and Ito, told apart with any colour vision; markers differ, too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"
# Perceptually uniform, and the same to any colour vision.
COLORMAP = "cividis"
# Inches: as wide as a column of a notebook.
WIDTH, HEIGHT = 6.4, 4.0


def make_axes(axes: Any) -> Any:
    """The axes given, or those of a new figure."""
    if axes is not None:
        return axes
    pyplot = import_extra("matplotlib.pyplot", "viz")
    _, axes = pyplot.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    return axes


def make_stack(
    axes: Any, heights: Sequence[float], height: float
) -> np.ndarray:
    """Axes one above the other with a common x axis.

    Args:
        axes: As many axes, or `None` for those of a new figure.
        heights: Relative height of each.
        height: Height of a new figure, in inches.

    Raises:
        ValueError: If the number of axes is another.
    """
    number = len(heights)
    if axes is not None:
        axes = np.asarray(axes, dtype=object).reshape(-1)
        if len(axes) != number:
            raise ValueError(
                f"`axes` must be {number} here, one for each part. "
                f"Received: {len(axes)} axes"
            )
        return axes
    pyplot = import_extra("matplotlib.pyplot", "viz")
    _, made = pyplot.subplots(
        number,
        sharex=True,
        squeeze=False,
        figsize=(WIDTH, height),
        height_ratios=heights,
        layout="constrained",
    )
    column: np.ndarray = made[:, 0]
    return column


def line_style(place: int) -> dict[str, Any]:
    """Colour and marker of a line by its place among others."""
    return {
        "color": COLORS[place % len(COLORS)],
        "marker": MARKERS[place // len(COLORS) % len(MARKERS)],
        "markersize": 4,
    }


def layer_styles(number: int) -> list[dict[str, Any]]:
    """Styles of one line a layer: a shade each where colours run out."""
    if number <= len(COLORS):
        return [line_style(place) for place in range(number)]
    matplotlib = import_extra("matplotlib", "viz")
    shades = matplotlib.colormaps[COLORMAP](np.linspace(0.0, 0.95, number))
    return [{"color": shade, "linewidth": 1.2} for shade in shades]


def finished(axes: Any, number_of_layers: int = 0) -> Any:
    """Removes what is not needed, and says which line is which.

    Args:
        axes: The axes.
        number_of_layers: Number of lines of `layer_styles`. They are told
            beside the axes, as they may fill them; many by a colour bar.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    if number_of_layers > len(COLORS):
        matplotlib = import_extra("matplotlib", "viz")
        shades = [style["color"] for style in layer_styles(number_of_layers)]
        scale = matplotlib.cm.ScalarMappable(
            matplotlib.colors.Normalize(0, number_of_layers - 1),
            matplotlib.colors.LinearSegmentedColormap.from_list("", shades),
        )
        whole = matplotlib.ticker.MaxNLocator(integer=True)
        axes.figure.colorbar(scale, ax=axes, label="layer", ticks=whole)
    elif axes.get_legend_handles_labels()[1]:
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(
            frameon=False,
            fontsize="small",
            **(beside if number_of_layers else {}),
        )
    return axes
