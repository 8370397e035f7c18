"""Tables and the figure of the study of noisy fine-tuning."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from keras_bft.diagnostics._figure import COLORS
from keras_bft.diagnostics._figure import MARKERS
from keras_bft.evaluation import paired_bootstrap
from sft_study.mechanism import write_mechanism

METRICS = ("em", "f1")
BASELINE = "sft"


def write_report(output: Path) -> Path:
    """Writes `summary.csv`, `mechanism.csv`, two pictures and `report.md`.

    Args:
        output: Folder of the study, with finished runs.

    Returns:
        The report.
    """
    rows = [
        row
        for folder in sorted(output.glob("*-*"))
        for row in _condition(folder)
    ]
    path = output / "report.md"
    if not rows:
        path.write_text("# Noisy fine-tuning\n\nNo run is finished.\n")
        return path
    with (output / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    _figure(rows, output / "f1.png")
    about = json.loads((output / "about.json").read_text())
    mechanism = write_mechanism(output)
    lines = [
        "# Noisy fine-tuning",
        "",
        f"{about['backend']} on {about['machine']}; options "
        f"`{' '.join(about['options'])}`. Means over seeds. Intervals are 95 % "
        "bootstrap intervals over questions of the mean over seeds of the "
        f"difference from `{BASELINE}`; they do not hold the variation between "
        "seeds.",
        "",
        *_table(rows),
        "",
        "![F1 by condition](f1.png)",
        "",
        "## Attention sinks, and precision of replaced tokens",
        "",
        *_table(mechanism),
        "",
        "![Attention on the first token by layer](sinks.png)",
        "",
    ]
    path.write_text("\n".join(lines))
    return path


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table."""
    return [
        "| " + " | ".join(rows[0]) + " |",
        "|" + " --- |" * len(rows[0]),
        *("| " + " | ".join(map(str, row.values())) + " |" for row in rows),
    ]


def _condition(folder: Path) -> list[dict[str, Any]]:
    """Rows of a table for the arms of a condition, over its seeds."""
    runs = [_read(path) for path in sorted(folder.glob("seed*/summary.csv"))]
    if not runs:
        return []
    # Seeds may have been stopped with fewer arms.
    arms = [arm for arm in runs[0] if all(arm in run for run in runs)]
    rows = []
    for arm in arms:
        row: dict[str, Any] = {
            "condition": folder.name,
            "arm": arm,
            "seeds": len(runs),
            "questions": len(runs[0][arm]["em"]),
            "held-out loss": f"{_mean(runs, arm, 'loss'):.4f}",
            "tokens": int(_mean(runs, arm, "tokens")),
            "tokens/s": f"{_mean(runs, arm, 'rate'):.0f}",
        }
        for name in METRICS:
            values = np.mean([run[arm][name] for run in runs], axis=0)
            row[name] = f"{values.mean():.4f}"
            row[f"{name} - {BASELINE}"] = ""
            if arm != BASELINE and BASELINE in arms:
                first = np.mean([run[BASELINE][name] for run in runs], axis=0)
                row[f"{name} - {BASELINE}"] = str(
                    paired_bootstrap(first, values)
                )
        rows.append(row)
    return rows


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Scores and costs of the arms of a run."""
    found = {}
    for row in _rows(path):
        folder = path.parent / row["run"]
        answers, history = (
            _rows(folder / f"{name}.csv") for name in ("answers", "history")
        )
        summary = json.loads((folder / "summary.json").read_text())
        found[row["arm"]] = {
            "loss": float(row["held_out_loss"]),
            "rate": float(history[-1]["tokens_per_second"]),
            "tokens": summary["tokens"],
            **{n: [float(a[n]) for a in answers] for n in METRICS},
        }
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _mean(runs: list[dict[str, dict[str, Any]]], arm: str, name: str) -> float:
    return float(np.mean([run[arm][name] for run in runs]))


def _figure(rows: list[dict[str, Any]], path: Path) -> None:
    kinds = sorted({row["condition"].rpartition("-")[0] for row in rows})
    labels = {
        "noise": "share of wrong answer tokens",
        "distractors": "passages without the answer",
    }
    figure = Figure(figsize=(5 * len(kinds), 4), layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    for axes, kind in zip(panels, kinds, strict=True):
        for place, arm in enumerate(arms):
            points = sorted(
                (float(row["condition"].rpartition("-")[2]), float(row["f1"]))
                for row in rows
                if row["arm"] == arm and row["condition"].startswith(kind)
            )
            axes.plot(
                *np.transpose(points),
                color=COLORS[place],
                marker=MARKERS[place],
                label=arm,
            )
        axes.set_xlabel(labels[kind])
        axes.set_ylabel("token F1")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
