"""Prior precision of items, the filter's layer 0."""

from typing import Any

import keras
from keras import ops

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
