"""Prior precision of items, the filter's layer 0."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers import ItemEncoder
from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import PrecisionMLP
from keras_bft.layers._filter_layer import check_choice
from keras_bft.typing import Tensor

PRIORS = ("item", "mlp", "constant")


def make_prior(
    kind: str, num_ids: int, initial_log_precision: float, dtype: Any
) -> keras.layers.Layer:
    """Returns the layer of a prior, all of whose precisions start alike.

    Args:
        kind: `"item"` (one per id), `"mlp"` (a network on the embeddings) or
            `"constant"` (one for all).
        num_ids: Number of ids.
        initial_log_precision: Where all start.
        dtype: Dtype policy of the network.

    Raises:
        ValueError: If `kind` is unknown.
    """
    check_choice("prior", kind, PRIORS)
    if kind == "mlp":
        return PrecisionMLP(
            initial_log_precision=initial_log_precision,
            dtype=dtype,
            name="prior",
        )
    return PrecisionEmbedding(
        num_ids if kind == "item" else 1,
        initial_log_precision,
        dtype="float32",
        name="prior",
    )


def prior_log_precision(
    prior: keras.layers.Layer | None, items: Tensor, embeddings: Tensor
) -> Tensor | None:
    """Prior log-precision `(B, T, 1)` of a batch; `None` without a prior."""
    if isinstance(prior, PrecisionMLP):
        return prior(embeddings)
    if prior is None:
        return None
    return prior(ops.zeros_like(items) if prior.input_dim == 1 else items)


def initialize_from_counts(
    recommender: Any, item_counts: Any, pseudo_count: float
) -> None:
    """See `FilterRecommender.initialize_prior`."""
    counts = np.asarray(item_counts, "float64")
    num_ids = recommender.item_embedding.input_dim
    prior = recommender.prior
    if prior is None or getattr(prior, "input_dim", 0) != num_ids:
        kind = recommender.get_config()["prior"]
        raise ValueError(
            "Only a Bayesian model with `prior='item'` has a precision "
            f"for each item. Received: prior={kind!r}, "
            f"bayesian={recommender.bayesian}"
        )
    if counts.shape != (recommender.num_items + 1,) or np.any(counts < 0):
        raise ValueError(
            "`item_counts` must hold a count, zero or more, for padding "
            f"and each of {recommender.num_items} items. Received: item_counts "
            f"of shape {counts.shape}, smallest {np.min(counts)}"
        )
    if counts[recommender.num_known_items + 1 :].any():
        raise ValueError(
            "`item_counts` must be zero for new items, those after "
            f"{recommender.num_known_items}. Received: "
            f"{counts[recommender.num_known_items + 1 :].sum()} interactions"
        )
    if not pseudo_count > 0 or not counts[1:].any():
        raise ValueError(
            "`pseudo_count` and some item's count must be above zero. "
            f"Received: pseudo_count={pseudo_count}, counts that sum to "
            f"{counts[1:].sum()}"
        )
    known = recommender.num_known_items + 1
    logs = np.log(counts[1:known] + pseudo_count)
    mean = np.average(logs, weights=counts[1:known])
    log_precision = np.full((num_ids, 1), -recommender.initial_log_variance)
    log_precision[1:known, 0] += logs - mean
    if isinstance(recommender.item_embedding, ItemEncoder):
        # That of new items, with which nobody has interacted.
        log_precision[0, 0] += np.log(pseudo_count) - mean
    if not recommender.built:
        recommender.build((None, recommender.max_length))
    prior.embeddings.assign(log_precision.astype("float32"))
