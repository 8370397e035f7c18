"""Figures of a study."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keras_bft.diagnostics._figure import COLORS
from keras_bft.diagnostics._figure import MARKERS
from study.results import Study
from study.variants import ablated_from


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


def shown(study: Study) -> list[str]:
    """Models that have lines of their own, few enough to tell apart.

    Those with one thing changed stand in `overall.png` and in the tables. They
    are left out here where the model that they change has more seeds, and all
    of them where more models remain than there are colours.
    """

    def bases(name: str) -> list[str]:
        return [base for _, base in ablated_from(name) if base in study.models]

    names = [
        name
        for name, runs in study.models.items()
        if all(len(runs) >= len(study.models[base]) for base in bases(name))
    ]
    if sum(name.startswith("bft-") for name in names) > len(COLORS):
        names = [name for name in names if not bases(name)]
    return names


def _rows(
    studies: list[Study], columns: int
) -> tuple[Figure, list[tuple[Study, list[Any], Any]]]:
    """A row of panels for each study, and a place for its legend."""
    figure = Figure(
        figsize=(4.0 * columns + 3.2, 3.3 * len(studies)), layout="constrained"
    )
    axes = figure.subplots(
        len(studies),
        columns + 1,
        squeeze=False,
        width_ratios=[4.0] * columns + [3.2],
    )
    rows = []
    for study, (*panels, legend) in zip(studies, axes, strict=True):
        panels[0].set_title(study.title, loc="left", fontweight="bold")
        legend.axis("off")
        rows.append((study, panels, legend))
    return figure, rows


def _legend(axes: Any, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """A legend alone, of lines by their names."""
    handles = [Line2D([], [], label=name, **styles[name]) for name in styles]
    axes.legend(
        handles=handles, loc="center left", frameon=False, fontsize="small"
    )


def _cold_start(studies: list[Study]) -> Figure | None:
    studies = [study for study in studies if study.pairs()]
    if not studies:
        return None
    figure, rows = _rows(studies, 2)
    strata = ("target's training count", "history length")
    for study, panels, legend in rows:
        pairs = [pair for pair in study.pairs() if pair[1] in shown(study)]
        styles = {}
        for place, (first, second) in enumerate(pairs):
            table = study.compare(first, second)
            style = {
                "color": COLORS[place % len(COLORS)],
                "marker": MARKERS[place % len(MARKERS)],
                "linestyle": "none",
            }
            styles[second] = style
            shift = (place - (len(pairs) - 1) / 2) * 0.6 / len(pairs)
            for axes, stratum in zip(panels, strata, strict=True):
                _relative(axes, table, stratum, shift, style)
        for axes, stratum in zip(panels, strata, strict=True):
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_xticks(range(4), ["Q0 (least)", "Q1", "Q2", "Q3 (most)"])
            axes.set_xlabel(f"quartile of users by {stratum}")
        panels[0].set_ylabel("change of HR@10\nby the filter, %")
        _legend(legend, styles)
    return figure


def _relative(
    axes: Any, table: Any, stratum: str, shift: float, style: dict[str, Any]
) -> None:
    """Relative differences of HR@10 in the groups of a stratum."""
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
    axes.errorbar(
        np.array([int(r.label[1]) for r in rows]) + shift,
        middle,
        yerr=[middle - low, high - middle],
        capsize=2,
        markersize=5,
        **style,
    )


def _values(
    study: Study, file: str, column: str, wanted: str
) -> dict[tuple[str, str], dict[str, float]]:
    """Means over seeds of the values of a name, by model and layer."""
    found = {}
    for name in shown(study):
        for value, groups in study.means(name, file, column).items():
            layer, _, last = value.rpartition("/")
            if last == wanted:
                found[name, layer.split("/")[0]] = groups
    return found


def _styles(keys: Iterable[tuple[str, str]]) -> dict[Any, dict[str, Any]]:
    """A colour a model and a marker a layer, by both and by each."""
    names, layers = (list(dict.fromkeys(x)) for x in zip(*keys, strict=True))
    colors = {
        name: {"color": COLORS[place % len(COLORS)]}
        for place, name in enumerate(names)
    }
    markers = {
        layer: {
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": ("-", "--", ":", "-.")[place % 4],
            "markersize": 5,
        }
        for place, layer in enumerate(layers)
    }
    both = {
        (name, layer): colors[name] | markers[layer]
        for name in names
        for layer in layers
    }
    gray = {x: {"color": "gray"} | markers[x] for x in layers if x}
    return both | colors | gray


def _lines(
    file: str, column: str, panels: Mapping[str, str], studies: list[Study]
) -> tuple[Figure | None, list[tuple[Any, str]]]:
    """Lines of each value in a panel; the panels, with their value's name."""
    values = {
        id(study): {x: _values(study, file, column, x) for x in panels}
        for study in studies
    }
    wanted = [x for x in panels if any(v[x] for v in values.values())]
    studies = [s for s in studies if any(values[id(s)].values())]
    if not wanted or not studies:
        return None, []
    figure, rows = _rows(studies, len(wanted))
    drawn = []
    for study, axes, legend in rows:
        own = values[id(study)]
        layered = [key for x in wanted for key in own[x] if key[1]]
        styles = _styles(layered or [key for x in wanted for key in own[x]])
        for panel, value in zip(axes, wanted, strict=True):
            for (name, layer), groups in own[value].items():
                style = styles[name, layer] if layer else styles[name]
                y = np.array(list(groups.values()))
                # Where units are carried all are higher, by as much.
                y = y - y.mean() if value == "item_prior" else y
                x = [int(g[1] if column == "quartile" else g) for g in groups]
                panel.plot(x, y, **style)
            panel.set_ylabel(panels[value])
            if own[value]:
                drawn.append((panel, value))
            else:
                panel.set_axis_off()
        _legend(legend, {x: s for x, s in styles.items() if type(x) is str})
    return figure, drawn


def _mechanism(studies: list[Study]) -> Figure | None:
    names = {
        "gain": "mean Kalman gain K",
        "item_prior": "prior log-precision of the item,\nless its mean",
    }
    figure, panels = _lines("mechanism.csv", "quartile", names, studies)
    for axes, value in panels:
        axes.set_xticks(range(4), ["Q0 (rare)", "Q1", "Q2", "Q3 (common)"])
        axes.set_xlabel("quartile of items by training count")
        if value == "gain":
            axes.set_ylim(0, 1)
    return figure


def _context(studies: list[Study]) -> Figure | None:
    names = {
        "gain": "mean Kalman gain K",
        "effective_sample_size": "effective sample size",
        "gate": "mean gate of GatedAttention",
    }
    figure, panels = _lines("context.csv", "visible", names, studies)
    for axes, value in panels:
        axes.set_xscale("log", base=2)
        axes.set_xlabel("visible items")
        if value in ("gain", "gate"):
            axes.set_ylim(0, 1)
    return figure
