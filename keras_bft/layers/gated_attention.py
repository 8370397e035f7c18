"""Standard attention with a gate on its output."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._attention import Attention
from keras_bft.layers._cache import update_cache
from keras_bft.layers._filter_layer import apply_dense
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import make_dense
from keras_bft.layers._masks import first_mask
from keras_bft.layers._trace import report
from keras_bft.typing import Tensor

GATES = ("elementwise", "headwise")


@keras.saving.register_keras_serializable(package="keras_bft")
class GatedAttention(Attention):
    """Softmax self-attention whose heads are gated by the query's state.

    The concatenated heads are multiplied by `sigmoid(norm(state) W_g)` before
    the output projection. It has no filter: it is the paper's gate, with this
    library's norm, masks and dropout around it, to compare a Kalman gain
    with.

    Args:
        num_heads: Number of query heads.
        gate: `"elementwise"` has a gate per channel of each head,
            `"headwise"` one per head. Defaults to `"elementwise"`.
        head_dim: Channels of a head. Defaults to `D // num_heads`.
        num_key_value_heads: Number of key and value heads, a divisor of
            `num_heads` (grouped queries). Defaults to `num_heads`.
        causal: Whether a query sees only its own and earlier positions.
        normalization: `"layer"` or `"rms"`: the norm applied to the state
            first (pre-norm), for the gate too. `None` applies none. Defaults
            to `"layer"`.
        epsilon: Epsilon of the norm. Defaults to `1e-6`.
        dropout: Share of attention weights dropped in training.
        dropout_mode: `"renormalized"` (default) or `"inverted"`, see
            `AttentionDropout`.
        use_bias: Whether the projections, the gate's among them, have biases.
            Defaults to `True`.
        kernel_initializer: Initializer of the projections.
        from_one: `True` makes the gate `2 sigmoid(norm(state) W_g)` with a
            kernel of zeros, so that it starts at one: for a gate added to
            pretrained weights (derived for this library). Defaults to
            `False`, the paper's gate.
        attention: `"auto"` (default), `"blockwise"`, `"dense"` or `"kernel"`,
            see `BFTAttention`.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        padding_mask: `(B, T)` bool, `True` at real positions. Defaults to the
            Keras mask of the state.
        attention_mask: `(B, T, T)` bool, `True` where a query may see a key.
        training: Whether to drop attention weights.

    Returns:
        What attention adds to the state, `(B, T, D)`. The Keras mask passes.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> attention = keras_bft.layers.GatedAttention(2, causal=True)
    >>> tuple(attention(np.random.normal(size=(2, 5, 8))).shape)
    (2, 5, 8)

    References:
        - [Qiu et al., 2025, Gated Attention for Large Language
          Models](https://arxiv.org/abs/2505.06708)
    """

    def __init__(
        self,
        num_heads: int,
        gate: str = "elementwise",
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        causal: bool = False,
        normalization: str | None = "layer",
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        dropout_mode: str = "renormalized",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        from_one: bool = False,
        attention: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            head_dim=head_dim,
            num_key_value_heads=num_key_value_heads,
            causal=causal,
            normalization=normalization,
            epsilon=epsilon,
            dropout=dropout,
            dropout_mode=dropout_mode,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            attention=attention,
            seed=seed,
            **kwargs,
        )
        check_choice("gate", gate, GATES)
        self.gate = gate
        self.from_one = from_one

    def build(self, state_shape: tuple[int | None, ...]) -> None:
        self._build_parts(state_shape, state_shape)
        channels = self._head_dim if self.gate == "elementwise" else 1
        self.gate_dense = make_dense(
            self,
            "gate",
            self.num_heads * channels,
            state_shape,
            kernel_initializer=(
                keras.initializers.Zeros() if self.from_one else None
            ),
        )
        self.built = True

    def call(
        self,
        state: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotation: Tensor | None = None,
        cache: dict[str, Tensor] | None = None,
        cache_index: int | Tensor = 0,
        training: bool = False,
        mask: Tensor | None = None,
        state_mask: Tensor | None = None,
    ) -> Any:
        padding_mask = first_mask(padding_mask, mask, state_mask)
        state = self.cast_state(state)
        normalized, _ = self._normalize(state)
        query, key, value = self._query_key_value(
            normalized, normalized, rotation
        )
        seen = {"key": key, "value": value}
        if cache is not None:
            seen = update_cache(cache, cache_index, seen)
        visible = self._visible_keys(
            state, padding_mask, attention_mask, cache is not None
        )
        estimate, reported = self._softmax_estimate(
            query, seen["key"], seen["value"], visible, training
        )
        gate = ops.sigmoid(apply_dense(self.gate_dense, normalized))
        if self.from_one:
            gate = 2.0 * gate
        channels = gate.shape[-1] // self.num_heads
        gate = ops.reshape(
            gate, (-1, ops.shape(state)[1], self.num_heads, channels)
        )
        report(self, gate=gate, **reported)
        return self._output(estimate * gate, None, seen, cache)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "gate": self.gate,
            "from_one": self.from_one,
        }
