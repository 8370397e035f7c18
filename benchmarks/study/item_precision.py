"""Scores that read the precision of an item's own embedding too."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_bft.models import SASRec


def score(model: SASRec, histories: Sequence[np.ndarray]) -> np.ndarray:
    """Mean-field scores where both sides of the inner product are uncertain.

    With the state `x` of variance `v`, and the item `e_i` of the variance
    `u_i`, one over its prior precision in the units of the embedding:

    ```
    z_i   = sum_d e_id x_d
    var_i = sum_d e_id^2 v_d + u_i sum_d (x_d^2 + v_d)
    ```

    the variance of a product of independent normals; the score is
    `z_i / sqrt(1 + pi / 8 var_i)`.

    Args:
        model: Bayesian, with a prior for each item.
        histories: One sequence of item ids per user.

    Returns:
        `(len(histories), num_items + 1)` float32, minus infinity for padding.
    """
    read = model.start(histories)
    variance = np.exp(-read.log_precisions)
    table = ops.convert_to_numpy(model.item_table())
    prior = ops.convert_to_numpy(model.prior.embeddings)[: len(table), 0]
    item_variance = np.exp(-prior) / model.input_scale**2
    spread = variance @ np.square(table).T
    total = np.sum(np.square(read.states) + variance, axis=1, keepdims=True)
    spread += total * item_variance
    scores = read.states @ table.T / np.sqrt(1.0 + np.pi / 8.0 * spread)
    scores[:, 0] = -np.inf
    return scores.astype("float32")
