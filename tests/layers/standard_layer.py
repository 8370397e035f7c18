"""A standard Transformer layer of Keras' own layers, with given weights."""

from typing import Any

import keras
import numpy as np


class StandardLayer:
    """Pre-norm or post-norm layer with the weights of a `BFTLayer`.

    Args:
        layer: Built `BFTLayer` with layer norms and a dense feed-forward
            network, whose weights are copied.
        width: Channels of the state.
    """

    def __init__(self, layer: Any, width: int) -> None:
        attention, feed_forward = layer.attention, layer.feed_forward
        num_heads = attention.num_heads
        head_dim = width // num_heads
        self.causal = attention.causal
        self.normalize_first = layer.normalize_first
        norms = (
            [attention.norm, feed_forward.norm]
            if layer.normalize_first
            else layer.post_norms
        )
        self.attention = keras.layers.MultiHeadAttention(num_heads, head_dim)
        self.norms = [
            keras.layers.LayerNormalization(epsilon=norm.epsilon)
            for norm in norms
        ]
        self.input_dense = keras.layers.Dense(
            feed_forward.hidden_dim, activation=feed_forward.activation
        )
        self.output_dense = keras.layers.Dense(width)
        self(np.zeros((1, 2, width), "float32"), np.ones((1, 2), bool))

        # Ours first, then the shape that Keras' layer has.
        heads = [width, num_heads, head_dim]
        pairs = []
        for dense, name in (
            (attention.query_dense, "query_dense"),
            (attention.key_dense, "key_dense"),
            (attention.value_dense, "value_dense"),
        ):
            theirs = getattr(self.attention, name)
            pairs += [(dense.kernel, theirs.kernel, heads)]
            pairs += [(dense.bias, theirs.bias, heads[1:])]
        theirs = self.attention.output_dense
        pairs += [
            (attention.output_dense.kernel, theirs.kernel, [*heads[1:], width]),
            (attention.output_dense.bias, theirs.bias, [width]),
        ]
        for ours, dense in (
            (feed_forward.input_dense, self.input_dense),
            (feed_forward.output_dense, self.output_dense),
        ):
            pairs += [(ours.kernel, dense.kernel, list(ours.kernel.shape))]
            pairs += [(ours.bias, dense.bias, list(ours.bias.shape))]
        for ours, norm in zip(norms, self.norms, strict=True):
            pairs += [(ours.gamma, norm.gamma, [width])]
            pairs += [(ours.beta, norm.beta, [width])]
        self.variables = [ours for ours, _, _ in pairs]
        self.own_variables = [theirs for _, theirs, _ in pairs]
        for ours, own, shape in pairs:
            own.assign(keras.ops.reshape(ours, shape))

    def __call__(self, state: Any, padding_mask: np.ndarray) -> Any:
        state = keras.ops.convert_to_tensor(state)
        if not self.normalize_first:
            state = self.norms[0](state + self._attend(state, padding_mask))
            return self.norms[1](state + self._feed_forward(state))
        state = state + self._attend(self.norms[0](state), padding_mask)
        return state + self._feed_forward(self.norms[1](state))

    def _attend(self, x: Any, padding_mask: np.ndarray) -> Any:
        return self.attention(
            x,
            x,
            attention_mask=padding_mask[:, None, :],
            use_causal_mask=self.causal,
        )

    def _feed_forward(self, x: Any) -> Any:
        return self.output_dense(self.input_dense(x))
