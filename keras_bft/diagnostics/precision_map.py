"""A picture of one sequence: precision by layer, and attention."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bft.diagnostics._figure import make_stack
from keras_bft.diagnostics._padding import real_tokens
from keras_bft.diagnostics.trace import Trace

# Tokens that can be written beside and below each other, and characters that
# fit into a line of a figure of the usual width.
_BESIDE, _BELOW, _CHARACTERS = 30, 20, 45
_CELLS = {"aspect": "auto", "interpolation": "nearest"}


def plot_precision_map(
    traced: Trace,
    example: int = 0,
    tokens: Sequence[Any] | None = None,
    padding_mask: Any = None,
    layer: str | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Plots the precision of each token through the layers, and attention.

    Above, a row for what came in and for what each layer hands on: the
    log-precision of each token, mean over channels, less the mean over the
    row, which stands beside it. A token above zero counts as more reliable
    than the others. Below, the attention weights of one layer, mean over
    heads, with the same tokens as keys. The few values beyond the ends of a
    colour bar have the colours of its ends.

    Args:
        traced: What `trace` returned.
        example: Row of the batch.
        tokens: What to write at its tokens, padding left out: words or ids.
            Defaults to their positions from 1.
        padding_mask: `(B, T)`, true at real tokens. Defaults to all.
        layer: Path of the layer whose attention is shown. Defaults to the
            last that has attention weights; where none has, the attention is
            left out.
        axes: Where to plot, two axes (one without attention). Defaults to new
            axes.

    Returns:
        The matplotlib axes, an array of two (or one).

    Raises:
        ValueError: If there is no precision, no such layer or example, or
            numbers of tokens differ.

    Example:

    ```python
    traced = keras_bft.diagnostics.trace(model, items)
    names = interactions.decode(items[0][items[0] != 0])
    keras_bft.diagnostics.plot_precision_map(
        traced, example=0, tokens=names, padding_mask=items != 0
    )
    ```
    """
    rows = _precisions(traced)
    shape = next(iter(rows.values())).shape
    if not 0 <= example < shape[0]:
        raise ValueError(
            f"`example` must be from 0 to {shape[0] - 1}. "
            f"Received: example={example}"
        )
    real = real_tokens(None, padding_mask, shape)[example]
    length = int(real.sum())
    if tokens is None:
        tokens = range(1, length + 1)
    if len(tokens) != length:
        raise ValueError(
            f"`tokens` must be {length}, the real tokens of the example. "
            f"Received: {len(tokens)} tokens"
        )
    weights = _attention(traced, layer)
    heights = [min(0.3 * len(rows) + 0.3, 3.0)]
    if weights is not None:
        heights.append(3.2)
    axes = make_stack(axes, heights, sum(heights) + 0.9)
    _precision_rows(
        axes[0], {name: x[example][real] for name, x in rows.items()}
    )
    if weights is not None:
        name, matrix = weights
        matrix = matrix[example][:, real][:, :, real].mean(axis=0)
        # Those of HSTU may be negative, a little.
        highest = max(float(np.quantile(matrix[matrix != 0], 0.95)), 1e-6)
        image = axes[1].imshow(
            matrix, cmap="Blues", vmin=0.0, vmax=highest, **_CELLS
        )
        _bar(image, "attention weight\nmean over heads", extend="max")
        _write_tokens(axes[1].yaxis, tokens, _BELOW)
        axes[1].set_ylabel(f"query, in {name}")
    axes[-1].set_xlabel("token" if weights is None else "key")
    _write_tokens(axes[-1].xaxis, tokens, _BESIDE)
    return axes


def _precisions(traced: Trace) -> dict[str, np.ndarray]:
    """What came in and what each layer hands on, `(B, T)` each."""
    rows: dict[str, np.ndarray] = {}
    for (path, call), means in traced.token_means().items():
        name = f"{path}, call {call}" if call else path
        if not rows and "prior_log_precision" in means:
            rows["prior"] = means["prior_log_precision"]
        for column in ("predicted_log_precision", "posterior_log_precision"):
            if column in means:
                rows[f"after {name}"] = means[column]
                break
    if not rows:
        raise ValueError(
            "`traced` must be of a model with a filter layer, such as one with "
            "`bayesian=True`. "
            f"Received: a trace of {sorted(traced)}"
        )
    return rows


def _attention(
    traced: Trace, layer: str | None
) -> tuple[str, np.ndarray] | None:
    found = {
        path: columns[name]
        for (path, _), columns in traced.by_layer().items()
        for name in ("kriging_weights", "attention_weights")
        if name in columns
    }
    if layer is None:
        return list(found.items())[-1] if found else None
    if layer not in found:
        raise ValueError(
            f"`layer` must be one with attention weights, {list(found)}. "
            f"Received: layer={layer!r}"
        )
    return layer, found[layer]


def _precision_rows(axes: Any, rows: dict[str, np.ndarray]) -> None:
    means = {name: row.mean() for name, row in rows.items()}
    values = np.stack([row - means[name] for name, row in rows.items()])
    # A single token far off would leave the others white.
    largest = max(float(np.quantile(np.abs(values), 0.98)), 1e-6)
    image = axes.imshow(
        values, cmap="PuOr_r", vmin=-largest, vmax=largest, **_CELLS
    )
    _bar(image, "log-precision\nless the row's mean", extend="both")
    labels = [f"{name}, mean {mean:.2f}" for name, mean in means.items()]
    axes.set_yticks(range(len(rows)), labels, fontsize="small")


def _bar(image: Any, label: str, **options: Any) -> None:
    axes = image.axes
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, **options)
    bar.set_label(label, fontsize="small")
    bar.ax.tick_params(labelsize="small")


def _write_tokens(axis: Any, tokens: Sequence[Any], room: int) -> None:
    texts = [str(token) for token in tokens]
    places = range(0, len(texts), -(-len(texts) // room))
    wide = len(places) * max(map(len, texts)) > _CHARACTERS
    axis.set_ticks(
        places,
        [texts[place] for place in places],
        fontsize="small",
        rotation=90 if wide and axis.axis_name == "x" else 0,
    )
