"""Figures of the fine-tuning example."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from _sft_questions import Rows
from _sft_questions import padded
from _sft_questions import padded_rows
from keras_bft import diagnostics

# Rows that are looked at, and all of a size.
_ROWS = 8


def write_figures(lm: Any, rows: Rows, folder: Path) -> None:
    """Writes attention sinks, gains and gates, and the ROC of precision.

    Each as data (`.csv`) and as a picture.
    """
    inputs = padded_rows(rows.train[:_ROWS])
    sinks = diagnostics.attention_sinks(lm, inputs)
    _write(
        folder / "sinks.csv",
        [
            "layer",
            *(f"head_{h}" for h in range(len(next(iter(sinks.values()))))),
        ],
        [[path, *share] for path, share in sinks.items()],
    )
    axes = diagnostics.plot_attention_sinks({folder.name: sinks})
    axes.figure.savefig(folder / "sinks.png", dpi=150)

    backbone = lm.backbone
    if backbone.bayesian or backbone.get_config()["gated_attention"]:
        curves = diagnostics.by_context_length(lm, inputs)
        _write(
            folder / "context.csv",
            ["value", "visible", "mean", "stddev", "number"],
            [
                [name, *point]
                for name, curve in curves.items()
                for point in zip(*curve, strict=True)
            ],
        )
        name = "gain" if backbone.bayesian else "gate"
        shown = {n: c for n, c in curves.items() if n.endswith(f"/{name}")}
        layers = list(shown)
        few = layers[:: max(1, len(layers) // 5)]
        axes = diagnostics.plot_context_curves(
            {layer: shown[layer] for layer in few}, f"mean {name}"
        )
        axes.figure.savefig(folder / "context.png", dpi=150)
    if backbone.bayesian and np.concatenate(rows.corrupted).any():
        _write_roc(lm, rows, folder)


def _write_roc(lm: Any, rows: Rows, folder: Path) -> None:
    """How well precision tells replaced tokens, among the answers' tokens."""
    chosen = rows.train[: 16 * _ROWS]
    corrupted = padded(rows.corrupted[: len(chosen)]).astype(bool)
    answers = padded(rows.train_mask[: len(chosen)])
    if not corrupted.any():
        return
    scores = lm.score(**padded_rows(chosen))
    curves = {
        "low precision": diagnostics.roc_curve(
            -scores.log_precision, corrupted, answers
        ),
        "low likelihood": diagnostics.roc_curve(
            -np.nan_to_num(scores.log_likelihood), corrupted, answers
        ),
    }
    _write(
        folder / "roc.csv",
        ["score", "auc"],
        [[name, curve.auc] for name, curve in curves.items()],
    )
    axes = diagnostics.plot_roc(curves)
    axes.figure.savefig(folder / "roc.png", dpi=150)


def _write(path: Path, header: list[str], rows: list[Any]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
