"""Temperature scaling, the usual mend of overconfident probabilities."""

from typing import Any

import numpy as np

# Logits held in float64 at a time: 32 MiB.
_CHUNK = 2**22
_TOLERANCE = 1e-10
_MAX_STEPS = 200


def fit_temperature(logits: Any, targets: Any) -> float:
    """The temperature that makes logits most likely.

    `softmax(logits / T)` with one scalar `T > 0` for all: the order of the
    classes stays as it was. The negative log-likelihood is convex in `1 / T`,
    and its one minimum is found by Newton's method between bounds. Fit on
    validation users and use it on others.

    Args:
        logits: `(n, num_classes)`, such as `model.score(histories)`. Minus
            infinity leaves a class out, as padding is.
        targets: `(n,)` integers, the class that came, an index of `logits`.

    Returns:
        `T`. Above 1 the logits were too sure.

    Raises:
        ValueError: If shapes do not fit, a logit is NaN or infinite, a target
            is no class or one left out, or no temperature is best: because
            every target has the highest logit, or targets have no higher
            logits than others.

    References:
        Guo et al., 2017, On calibration of modern neural networks
        (arXiv 1706.04599).

    Example:

    >>> logits = [[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]
    >>> temperature = keras_bft.evaluation.fit_temperature(
    ...     logits, [0, 0, 1, 1])
    >>> round(temperature, 3)  # Three of four are right: 2 / log(3).
    1.82
    """
    logits, targets = np.asarray(logits), np.asarray(targets)
    wanted = _check(logits, targets)
    highest = logits.max(axis=1).astype("float64")
    low, high = 0.0, np.inf
    if not np.any(wanted < highest):
        raise ValueError(
            "Every target has the highest logit, so that likelihood only grows "
            f"as T falls to 0. Received: {len(wanted)} rows"
        )
    slope, _ = _derivatives(0.0, logits, wanted, highest)
    if slope >= 0:
        raise ValueError(
            "The logits of `targets` are no higher than those of other "
            "classes, so that no T is better than a uniform guess. Received: "
            f"a mean advantage of {-slope}"
        )
    inverse = 1.0
    for _ in range(_MAX_STEPS):
        slope, curvature = _derivatives(inverse, logits, wanted, highest)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0 else np.nan
        if not low <= step <= high:
            step = 2.0 * low if np.isinf(high) else (low + high) / 2.0
        if abs(step - inverse) <= _TOLERANCE * inverse:
            break
        inverse = step
    return float(1.0 / step)


def _check(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The targets' logits, float64, of arguments that fit."""
    if (
        logits.ndim != 2
        or targets.shape != logits.shape[:1]
        or not logits.size
        or targets.dtype.kind not in "iu"
    ):
        raise ValueError(
            "`logits` must be of shape (n, num_classes) and `targets` of n "
            f"integers. Received: logits of shape {logits.shape}, targets of "
            f"shape {targets.shape} and dtype {targets.dtype}"
        )
    wrong = np.isnan(logits).sum() + np.isposinf(logits).sum()
    if wrong:
        raise ValueError(
            "`logits` must be finite, or minus infinity for a class that is "
            f"left out. Received: {wrong} that are NaN or infinite"
        )
    outside = targets[(targets < 0) | (targets >= logits.shape[1])]
    if outside.size:
        raise ValueError(
            f"`targets` must be from 0 to {logits.shape[1] - 1}. "
            f"Received: {outside[0]}"
        )
    wanted = logits[np.arange(len(targets)), targets].astype("float64")
    if np.isinf(wanted).any():
        row = int(np.argmax(np.isinf(wanted)))
        raise ValueError(
            "A target's logit must be finite: the class that came cannot be "
            f"one left out. Received: targets[{row}]={targets[row]}"
        )
    return wanted


def _derivatives(
    inverse: float, logits: np.ndarray, wanted: np.ndarray, highest: np.ndarray
) -> tuple[float, float]:
    """First and second derivative, by `1 / T`, of the mean of minus the log."""
    slope = curvature = 0.0
    rows = max(1, _CHUNK // logits.shape[1])
    for start in range(0, len(logits), rows):
        part = slice(start, start + rows)
        z = logits[part].astype("float64") - highest[part, None]
        held = np.isfinite(z)
        z = np.where(held, z, 0.0)
        weights = np.where(held, np.exp(inverse * z), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        mean = (weights * z).sum(axis=1)
        slope += float((mean - (wanted - highest)[part]).sum())
        square = (weights * np.square(z)).sum(axis=1)
        curvature += float((square - np.square(mean)).sum())
    return slope / len(logits), curvature / len(logits)
