"""Checks of confidences and of what came of them."""

from typing import Any

import numpy as np


def check_confidences(
    confidence: Any, hits: Any, probability: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the confidences in float64 and the hits as 0.0 and 1.0.

    Args:
        confidence: `(n,)` numbers.
        hits: `(n,)`, booleans, or zeros and ones.
        probability: Whether a confidence has to be from 0 to 1.

    Raises:
        ValueError: If they are not one-dimensional, equally long, and such
            numbers, or there are none.
    """
    confidence = np.asarray(confidence, "float64")
    hits = np.asarray(hits)
    if confidence.ndim != 1 or confidence.shape != hits.shape or not hits.size:
        raise ValueError(
            "`confidence` and `hits` must be one-dimensional, equally long and "
            "not empty. Received: confidence of shape "
            f"{confidence.shape}, hits of shape {hits.shape}"
        )
    low, high = (0.0, 1.0) if probability else (-np.inf, np.inf)
    # A NaN is neither.
    wrong = ~((confidence >= low) & (confidence <= high))
    if wrong.any():
        allowed = "from 0 to 1" if probability else "not NaN"
        first = int(np.argmax(wrong))
        raise ValueError(
            f"`confidence` must hold numbers that are {allowed}. Received: "
            f"{confidence[first]} at {first}, and {wrong.sum() - 1} more"
        )
    wrong = ~np.isin(hits, (0, 1))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            "`hits` must be true or false, one or zero. Received: "
            f"{hits[first]} at {first}, and {wrong.sum() - 1} more"
        )
    return confidence, hits.astype("float64")
