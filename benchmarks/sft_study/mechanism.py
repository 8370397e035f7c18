"""What the arms of the study do inside: attention sinks, and precision."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from keras_bft.diagnostics._figure import COLORS
from keras_bft.diagnostics._figure import MARKERS

# Of the model that training starts from, beside the arms.
BEFORE = "checkpoint"


def write_mechanism(output: Path) -> list[dict[str, Any]]:
    """Writes `mechanism.csv` and `sinks.png`.

    Args:
        output: Folder of the study.

    Returns:
        A row for each condition and arm: the share of the attention on the
        first token, as mean and in the layer with the most, and, where tokens
        were replaced, the area under the ROC curve of low precision and of
        low likelihood for them. Means over heads and seeds.
    """
    shares: dict[str, dict[str, np.ndarray]] = {}
    rows = []
    for folder in sorted(output.glob("*-*")):
        runs = _runs(folder)
        for arm, paths in runs.items():
            share = np.mean([_sinks(path) for path in paths], axis=0)
            shares.setdefault(folder.name, {})[arm] = share
            row: dict[str, Any] = {
                "condition": folder.name,
                "arm": arm,
                "sink, mean of layers": f"{share.mean():.3f}",
                "largest": f"{share.max():.3f} (layer {share.argmax()})",
            }
            areas = [_areas(path) for path in paths]
            for score in ("low precision", "low likelihood"):
                given = [area[score] for area in areas if score in area]
                row[f"AUC of {score}"] = (
                    f"{np.mean(given):.3f}" if given else ""
                )
            rows.append(row)
    if rows:
        with (output / "mechanism.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        _figure(shares).savefig(output / "sinks.png", dpi=150)
    return rows


def _runs(folder: Path) -> dict[str, list[Path]]:
    """Folders of a condition's arms, over its seeds."""
    runs: dict[str, list[Path]] = {}
    for summary in sorted(folder.glob("seed*/summary.csv")):
        with summary.open(newline="") as file:
            arms = {row["arm"]: row["run"] for row in csv.DictReader(file)}
        for arm, run in ({BEFORE: BEFORE} | arms).items():
            if (summary.parent / run / "sinks.csv").exists():
                runs.setdefault(arm, []).append(summary.parent / run)
    return runs


def _sinks(folder: Path) -> np.ndarray:
    """Share of the attention on the first token by layer, mean over heads."""
    with (folder / "sinks.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    return np.array([row[1:] for row in rows], "float64").mean(axis=1)


def _areas(folder: Path) -> dict[str, float]:
    path = folder / "roc.csv"
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {r["score"]: float(r["auc"]) for r in csv.DictReader(file)}


def _figure(shares: dict[str, dict[str, np.ndarray]]) -> Figure:
    width = 4.4 * len(shares)
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    panels = figure.subplots(1, len(shares), squeeze=False, sharey=True)[0]
    arms = list(dict.fromkeys(arm for own in shares.values() for arm in own))
    for axes, (condition, own) in zip(panels, shares.items(), strict=True):
        for arm, share in own.items():
            place = arms.index(arm)
            axes.plot(
                share,
                color=COLORS[place % len(COLORS)],
                marker=MARKERS[place % len(MARKERS)],
                markersize=4,
                label=arm,
            )
        axes.set_title(condition)
        axes.set_xlabel("layer")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("attention on the first token,\nmean over heads")
    panels[0].set_ylim(0, 1)
    panels[0].legend(frameon=False, fontsize="small")
    return figure
