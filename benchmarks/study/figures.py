"""Figures of a study."""

from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from keras_bft.diagnostics._figure import COLORS
from keras_bft.diagnostics._figure import MARKERS
from study.results import Study


def write_figures(studies: list[Study], output: Path) -> list[str]:
    """Writes the figures that the runs allow and returns their names."""
    makers: dict[str, Callable[[list[Study]], Figure | None]] = {
        "overall.png": _overall,
        "cold_start.png": _cold_start,
        "mechanism.png": _mechanism,
        "context.png": _context,
    }
    names = []
    for name, make in makers.items():
        figure = make(studies)
        if figure is not None:
            for axes in figure.axes:
                axes.spines[["top", "right"]].set_visible(False)
                axes.grid(alpha=0.3)
            figure.savefig(output / name, dpi=150)
            names.append(name)
    return names


def _comparisons(studies: list[Study]) -> list[tuple[str, Any]]:
    return [
        (f"{study.data}: {second}", study.compare(first, second))
        for study in studies
        for first, second in study.pairs()
    ]


def _overall(studies: list[Study]) -> Figure | None:
    comparisons = _comparisons(studies)
    if not comparisons:
        return None
    height = 1.2 + 0.35 * len(comparisons)
    figure = Figure(figsize=(10, height), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric in zip(panels, ("hr@10", "ndcg@10"), strict=True):
        for place, (_, table) in enumerate(comparisons):
            row = next(
                r
                for r in table.rows
                if r.metric == metric and r.stratum == "all users"
            )
            scale = 100 / max(row.first, 1e-9)
            middle = scale * row.interval.difference
            axes.errorbar(
                middle,
                place,
                xerr=[
                    [middle - scale * row.interval.low],
                    [scale * row.interval.high - middle],
                ],
                color=COLORS[0],
                marker="o",
                capsize=3,
            )
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel(f"change of {metric.upper()} by the filter, %")
    panels[0].set_yticks(
        range(len(comparisons)), [name for name, _ in comparisons]
    )
    panels[0].invert_yaxis()
    return figure


def _cold_start(studies: list[Study]) -> Figure | None:
    comparisons = _comparisons(studies)
    if not comparisons:
        return None
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = ("target's training count", "history length")
    for axes, stratum in zip(panels, names, strict=True):
        for place, (name, table) in enumerate(comparisons):
            rows = [
                r
                for r in table.rows
                if r.metric == "hr@10"
                and r.stratum == stratum
                and r.interval is not None
                and r.first
            ]
            scale = np.array([100 / r.first for r in rows])
            middle = scale * [r.interval.difference for r in rows]
            low = scale * [r.interval.low for r in rows]
            high = scale * [r.interval.high for r in rows]
            groups = np.array([int(r.label[1]) for r in rows])
            shift = (place - (len(comparisons) - 1) / 2) * 0.6
            axes.errorbar(
                groups + shift / max(len(comparisons), 1),
                middle,
                yerr=[middle - low, high - middle],
                color=COLORS[place % len(COLORS)],
                marker=MARKERS[place % len(MARKERS)],
                linestyle="none",
                capsize=2,
                label=name,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(4), ["Q0 (least)", "Q1", "Q2", "Q3 (most)"])
        axes.set_xlabel(f"quartile of users by {stratum}")
    panels[0].set_ylabel("change of HR@10 by the filter, %")
    _legend(figure, panels[0])
    return figure


def _series(
    studies: list[Study], file: str, column: str, wanted: str
) -> list[tuple[str, list[str], list[float]]]:
    """Means over seeds of every value of a name, by group."""
    series = []
    for study in studies:
        for name in study.models:
            for value, groups in study.means(name, file, column).items():
                layer, _, last = value.rpartition("/")
                if last != wanted:
                    continue
                layer = layer.split("/")[0]
                label = f"{study.data}: {name} {layer}".strip()
                series.append((label, list(groups), list(groups.values())))
    return series


def _plot(
    axes: Any,
    series: list[tuple[str, Any, list[float]]],
    places: Mapping[str, int] | None = None,
) -> None:
    for place, (label, x, y) in enumerate(series):
        place = (places or {}).get(label, place)
        axes.plot(
            x,
            y,
            color=COLORS[place % len(COLORS)],
            marker=MARKERS[place // len(COLORS) % len(MARKERS)],
            label=label,
        )


def _mechanism(studies: list[Study]) -> Figure | None:
    file = ("mechanism.csv", "quartile")
    gains = _series(studies, *file, "gain")
    priors = _series(studies, *file, "item_prior")
    if not gains:
        return None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    # A model's prior has the colour of its first layer's gain.
    places = {
        label.rsplit(" ", 1)[0]: n
        for n, (label, *_) in reversed(list(enumerate(gains)))
    }
    for axes, series in ((left, gains), (right, priors)):
        quartiles = [(n, [int(g[1]) for g in x], y) for n, x, y in series]
        _plot(axes, quartiles, places if axes is right else {})
        axes.set_xticks(range(4), ["Q0 (rare)", "Q1", "Q2", "Q3 (common)"])
        axes.set_xlabel("quartile of items by training count")
    _legend(figure, left)
    left.set_ylabel("mean Kalman gain K")
    left.set_ylim(0, 1)
    right.set_ylabel("learned prior log-precision of the item")
    return figure


def _context(studies: list[Study]) -> Figure | None:
    panels = (
        ("gain", "mean Kalman gain K"),
        ("effective_sample_size", "effective sample size"),
        ("gate", "mean gate of GatedAttention"),
    )
    file = ("context.csv", "visible")
    found = [(_series(studies, *file, n), label) for n, label in panels]
    found = [(series, label) for series, label in found if series]
    if not found:
        return None
    figure = Figure(figsize=(4.5 * len(found), 4.2), layout="constrained")
    panes = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (series, label) in zip(panes, found, strict=True):
        _plot(axes, [(n, [int(v) for v in x], y) for n, x, y in series])
        axes.set_xscale("log", base=2)
        axes.set_xlabel("visible items")
        axes.set_ylabel(label)
        axes.legend(frameon=False, fontsize="x-small")
    return figure


def _legend(figure: Figure, axes: Any) -> None:
    """One legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize="small",
    )
