"""When the gain or the precision of a layer no longer tells anything."""

from collections.abc import Mapping

import numpy as np

# What a layer must be stuck at before it counts as stuck.
_SHARE = 0.99
# exp(-80) and exp(80) are about the ends of float32.
_LARGEST_LOG_PRECISION = 80.0


def find_collapse(
    values: Mapping[str, np.ndarray], tolerance: float
) -> dict[str, str]:
    """Finds what is wrong with the values of one layer.

    Args:
        values: `"gain"`, `"prior_log_precision"`, `"posterior_log_precision"`
            and, where there are any, `"observation_log_precision"`,
            `"predicted_log_precision"`, each `(N, D)` or `(N, 1)` for `N`
            tokens, and `"log_process_noise"`, `(D,)` or `(1,)`.
        tolerance: How near a value is to a bound when it is stuck there.

    Returns:
        What to tell, by the kind of the collapse.
    """
    broken = [name for name, x in values.items() if not np.isfinite(x).all()]
    if broken:
        return {"finite": f"has values that are not finite: {broken}"}
    found = {}
    if _mostly(values["gain"] < tolerance):
        found["zero"] = (
            "has a gain stuck at 0: nothing that its attention observes "
            "reaches the state. The state counts as far more precise than "
            "any observation"
        )
    if _mostly(_full_strength_gain(values) > 1.0 - tolerance):
        found["one"] = (
            "has a gain stuck at 1: the filter does nothing here, as any "
            "observation counts as far more precise than the state"
        )
    updated = values["posterior_log_precision"]
    if _mostly(np.abs(updated) >= _LARGEST_LOG_PRECISION):
        found["range"] = (
            "has log-precisions at the ends of float32, beyond "
            f"{_LARGEST_LOG_PRECISION:.0f}: the mean is {updated.mean():.4g}"
        )
    predicted = values.get("predicted_log_precision")
    noise = values.get("log_process_noise")
    if predicted is not None and noise is not None:
        if _mostly(predicted + noise > -tolerance):
            found["noise"] = (
                "predicts the precision of its process noise alone, the "
                "largest there is, for every token: what the update found "
                "out does not reach the next layer"
            )
    return found


def _full_strength_gain(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The gain that a filter of strength one would have."""
    observed = values.get("observation_log_precision")
    if observed is None:
        return values["gain"]
    odds = observed - values["prior_log_precision"]
    return 1.0 / (1.0 + np.exp(-np.clip(odds, -80.0, 80.0)))


def _mostly(stuck: np.ndarray) -> bool:
    return bool(stuck.mean() >= _SHARE)
