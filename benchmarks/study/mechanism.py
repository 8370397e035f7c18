"""What the filter does: gain and precision by item count and context length."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bft.data import pad_sequences
from keras_bft.diagnostics import trace
from keras_bft.evaluation import quartile_strata
from keras_bft.training import replacing

TRACED = ("gain", "prior_log_precision", "effective_sample_size", "gate")
ROWS = 64  # Sequences traced at a time, all of the same size.
VISIBLE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)


def _batches(sequences: list[np.ndarray], length: int) -> Iterator[np.ndarray]:
    for start in range(0, len(sequences), ROWS):
        part = sequences[start : start + ROWS]
        items = np.zeros((ROWS, length), "int32")
        items[: len(part)] = pad_sequences(part, length)
        yield items


def _token_means(traced: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The traced values of interest, each `(B, T)`."""
    means = {}
    for name, values in traced.items():
        if name.rsplit("/", 1)[-1] in TRACED:
            rows, length = values.shape[:2]
            means[name] = values.reshape(rows, length, -1).mean(axis=-1)
    return means


def _choose(sequences: list[np.ndarray], number: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(sequences))[:number]
    return [sequences[place] for place in chosen]


def write_mechanism(
    model: Any,
    histories: list[np.ndarray],
    item_counts: np.ndarray,
    number: int,
    folder: Path,
) -> None:
    """Writes `mechanism.csv`: means over tokens, by layer and item quartile.

    Tokens are those of `number` users, their quartile is that of their item's
    training count among the items of the catalogue. `item_prior` is the
    learned log-precision of the items themselves.
    """
    counts = item_counts[1:]
    strata = quartile_strata(counts, "training count of the item")
    group = np.concatenate([[-1], strata.index])
    sums: dict[tuple[str, int], np.ndarray] = {}
    for items in _batches(_choose(histories, number), model.max_length):
        for name, values in _token_means(trace(model, items)).items():
            for index in range(4):
                chosen = values[group[items] == index]
                total = sums.setdefault((name, index), np.zeros(3))
                total += [len(chosen), chosen.sum(), (chosen**2).sum()]
    rows = [
        _row(name, strata.labels[index], *total)
        for (name, index), total in sums.items()
    ]
    prior = getattr(getattr(model, "prior", None), "embeddings", None)
    if prior is not None and prior.shape[0] > len(counts):
        values = keras.ops.convert_to_numpy(prior)[1 : len(counts) + 1, 0]
        for label, mask in strata.masks():
            chosen = values[mask]
            moments = (len(chosen), chosen.sum(), (chosen**2).sum())
            rows.append(_row("item_prior", label, *moments))
    with replacing(folder / "mechanism.csv") as part:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("value", "quartile", "number", "mean", "stddev"))
            writer.writerows(rows)


def _row(
    name: str, label: str, number: float, total: float, squares: float
) -> tuple[str, str, int, str, str]:
    mean = total / max(number, 1)
    variance = max(squares / max(number, 1) - mean**2, 0.0)
    return name, label, int(number), f"{mean:.6g}", f"{variance**0.5:.6g}"


def write_context(
    model: Any, histories: list[np.ndarray], number: int, folder: Path
) -> None:
    """Writes `context.csv`: the newest position seeing ever more keys.

    The content is fixed: full sequences at fixed positions, of which the
    attention of every layer is restricted to the newest `visible` keys. Only
    users with at least `max_length` items, or the longest quarter, take part.
    """
    length = model.max_length
    enough = min(length, int(np.quantile([len(h) for h in histories], 0.75)))
    long = [h[-enough:] for h in histories if len(h) >= enough]
    rows = []
    chosen = _choose(long, number)
    for visible in [v for v in VISIBLE if v < enough] + [enough]:
        distance = np.arange(enough)[:, None] - np.arange(enough)
        mask = np.tile(distance < visible, (ROWS, 1, 1))
        parts: dict[str, list[np.ndarray]] = {}
        for items in _batches(chosen, enough):
            traced = trace(model, items, attention_mask=mask)
            real = items[:, -1] > 0
            for name, values in _token_means(traced).items():
                parts.setdefault(name, []).append(values[real, -1])
        for name, arrays in parts.items():
            newest = np.concatenate(arrays)
            moments = (len(newest), newest.sum(), (newest**2).sum())
            rows.append(_row(name, str(visible), *moments))
    with replacing(folder / "context.csv") as part:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("value", "visible", "number", "mean", "stddev"))
            writer.writerows(rows)
