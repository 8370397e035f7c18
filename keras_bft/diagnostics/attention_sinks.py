"""How much attention goes to the first token."""

from typing import Any

import numpy as np

from keras_bft.diagnostics._padding import real_tokens
from keras_bft.diagnostics.trace import trace
from keras_bft.layers._trace import WEIGHTS


def attention_sinks(
    model: Any, inputs: Any, padding_mask: Any = None, **kwargs: Any
) -> dict[str, np.ndarray]:
    """Share of the attention on the first token, by layer and head.

    Pretrained decoders put much of it there, whatever the token says
    (an attention sink, Xiao et al. 2023). The share is the mean over the
    queries of each sequence but the first, which sees nothing else.

    Args:
        model: A model with layers of `keras_bft.layers`, causal.
        inputs: One batch of its inputs.
        padding_mask: `(B, T)`, true at real tokens. Defaults to the entry of
            that name in `inputs`, or to all.
        **kwargs: Other arguments of the call.

    Returns:
        For each layer, by its path, the share of each head, `(H,)`, from 0 to
        1, in the order of computation.

    Raises:
        ValueError: If the model has no attention of this library, or no
            sequence has two tokens.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> sinks = keras_bft.diagnostics.attention_sinks(
    ...     model, np.array([[3, 5, 7, 2]]))
    >>> [(path, share.shape) for path, share in sinks.items()]
    [('block_0/attention', (2,)), ('block_1/attention', (2,))]

    References:
        - [Xiao et al., 2023, Efficient Streaming Language Models with
          Attention Sinks](https://arxiv.org/abs/2309.17453)
    """
    sinks = {}
    for name, weights in trace(model, inputs, WEIGHTS, **kwargs).items():
        path = name.rpartition("/")[0]
        mask = real_tokens(inputs, padding_mask, weights.shape[::3])
        first = np.argmax(mask, axis=1)
        queries = mask & (np.arange(mask.shape[1]) > first[:, None])
        if not queries.any():
            raise ValueError(
                "A sequence must have at least two tokens. Received: "
                f"sequences of {mask.sum(axis=1).tolist()} tokens"
            )
        # (B, T, H): the weight of each sequence's first token.
        onto = np.take_along_axis(weights, first[:, None, None, None], -1)
        sinks[path] = onto[..., 0].transpose(0, 2, 1)[queries].mean(axis=0)
    if not sinks:
        raise ValueError(
            "The model must have an attention layer of `keras_bft.layers`. "
            f"Received: model={model}"
        )
    return sinks
