"""What the attention layers share: projections, heads and masks."""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops

from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import apply_dense
from keras_bft.layers._filter_layer import apply_dropout
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import check_rate
from keras_bft.layers._filter_layer import head_width
from keras_bft.layers._filter_layer import known_width
from keras_bft.layers._filter_layer import make_dense
from keras_bft.layers._masks import visible_keys
from keras_bft.layers._trace import WEIGHTS
from keras_bft.layers._trace import is_heard
from keras_bft.layers.attention_dropout import AttentionDropout
from keras_bft.layers.state_normalization import NORMALIZATIONS
from keras_bft.layers.state_normalization import StateNormalization
from keras_bft.ops import WeightDropout
from keras_bft.ops import blockwise_estimate
from keras_bft.ops import fused_estimate
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_weights
from keras_bft.ops import rotate
from keras_bft.ops._own_gradient import is_written_for_a_server
from keras_bft.typing import Tensor

ATTENTIONS = ("auto", "blockwise", "dense", "kernel")

# Up to it weights that are all held are faster on TensorFlow and PyTorch
# (`benchmarks/attention.py`).
LONGEST_DENSE = 256


class Visible(NamedTuple):
    """Which keys the queries of a call see.

    Attributes:
        mask: `(B or 1, T or 1, S)` bool, or `None` for all keys.
        causal: Whether a query sees its own and earlier keys only, besides.
        blockwise: Whether weights are computed block by block.
    """

    mask: Tensor | None
    causal: bool
    blockwise: bool


class Attention(FilterLayer):
    """Base of the attention layers: the parts of standard attention.

    Args:
        num_heads: Number of query heads.
        head_dim: Channels of a head. Defaults to `D // num_heads`.
        num_key_value_heads: Number of key and value heads, a divisor of
            `num_heads`. Defaults to `num_heads`.
        causal: Whether a query sees only its own and earlier positions.
        normalization: `"layer"`, `"rms"` or `None`: the norm applied first.
        epsilon: Epsilon of the norm.
        dropout: Share of attention weights dropped in training.
        dropout_mode: See `AttentionDropout`.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initializer of the projections.
        attention: How weights are computed, with the same results:
            `"blockwise"` never holds all of them, `"dense"` does, `"kernel"` is
            a fused GPU kernel, see `BFTAttention`. `"auto"` is blockwise, and
            dense while `keras_bft.diagnostics.trace` listens and, on
            TensorFlow and PyTorch, for up to 256 positions. Without the
            filter and dropout it is PyTorch's own attention there.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        causal: bool = False,
        normalization: str | None = "layer",
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        dropout_mode: str = "renormalized",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        attention: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive("num_heads", num_heads)
        if head_dim is not None:
            check_positive("head_dim", head_dim)
        if num_key_value_heads is not None:
            check_positive("num_key_value_heads", num_key_value_heads)
            if num_heads % num_key_value_heads:
                raise ValueError(
                    "`num_key_value_heads` must divide `num_heads`. Received: "
                    f"num_key_value_heads={num_key_value_heads}, "
                    f"num_heads={num_heads}"
                )
        check_choice("normalization", normalization, (*NORMALIZATIONS, None))
        check_rate("dropout", dropout)
        check_choice("attention", attention, ATTENTIONS)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.num_key_value_heads = num_key_value_heads
        self.causal = causal
        self.normalization = normalization
        self.epsilon = epsilon
        self.dropout = dropout
        self.dropout_mode = dropout_mode
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.attention = attention
        self.seed = seed
        self.attention_dropout = AttentionDropout(
            dropout,
            dropout_mode,
            seed,
            dtype=self.statistics_dtype,
            name="dropout",
        )

    def _build_parts(
        self,
        state_shape: tuple[int | None, ...],
        keys_shape: tuple[int | None, ...],
    ) -> None:
        """Creates the norm and the four projections."""
        width = known_width(state_shape)
        head_dim = head_width(self.num_heads, self.head_dim, state_shape)
        self._head_dim = head_dim
        query_units = self.num_heads * head_dim
        key_units = (self.num_key_value_heads or self.num_heads) * head_dim
        if self.normalization is not None:
            self.norm = StateNormalization(
                self.normalization,
                self.epsilon,
                dtype=self.dtype_policy,
                name="norm",
            )
            self.norm.build(state_shape)
        self.query_dense = make_dense(self, "query", query_units, state_shape)
        self.key_dense = make_dense(self, "key", key_units, keys_shape)
        self.value_dense = make_dense(self, "value", key_units, keys_shape)
        self.output_dense = make_dense(
            self, "output", width, (None, None, query_units)
        )

    def _normalize(self, state: Tensor) -> tuple[Tensor, Tensor | None]:
        """The normalised state, and the spread if there is a norm."""
        if self.normalization is None:
            return state, None
        return self.norm.call(state)

    def _split_heads(self, x: Tensor) -> Tensor:
        shape = (-1, ops.shape(x)[1], x.shape[-1] // self._head_dim)
        return ops.reshape(x, (*shape, self._head_dim))

    def _query_key_value(
        self, normalized: Tensor, keys: Tensor, rotation: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        query = self._split_heads(apply_dense(self.query_dense, normalized))
        key = self._split_heads(apply_dense(self.key_dense, keys))
        value = self._split_heads(apply_dense(self.value_dense, keys))
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        return query, key, value

    def _visible_keys(
        self,
        state: Tensor,
        padding_mask: Tensor | None,
        attention_mask: Tensor | None,
        cached: bool,
    ) -> Visible:
        """Which keys the queries see, and how their weights are computed."""
        blockwise = self._is_blockwise(state)
        causal = self.causal and blockwise and not cached
        length = None
        if self.causal and not causal:
            length = ops.shape(state)[1]
        mask = visible_keys(padding_mask, attention_mask, length)
        return Visible(mask, causal, blockwise)

    def _is_blockwise(self, state: Tensor) -> bool:
        if self.attention == "dense" or is_heard(*WEIGHTS):
            # Weights that are reported have to be there.
            return False
        if self.attention in ("blockwise", "kernel"):
            return True
        if _is_exported(state):
            return False
        return (
            keras.backend.backend() == "jax" or state.shape[1] > LONGEST_DENSE
        )

    def _is_fused(self, query: Tensor, training: bool) -> bool:
        """Whether standard attention is best left to the backend."""
        return (
            keras.backend.backend() == "torch"
            and self.attention == "auto"
            and not is_heard(*WEIGHTS)
            and not (training and self.dropout > 0)
            and not _is_exported(query)
        )

    def _dropped(
        self, query: Tensor, key: Tensor, visible: Visible, training: bool
    ) -> dict[str, Any]:
        """Mask and dropout of blockwise attention, and whether in a kernel."""
        dropped = None
        if training and self.dropout > 0:
            batch, length, num_heads, _ = ops.shape(query)
            num_keys, heads = ops.shape(key)[1:3]
            groups = num_heads // heads
            kept = self.attention_dropout.kept(
                (batch, heads, length * groups, num_keys)
            )
            inverted = self.dropout_mode == "inverted"
            dropped = WeightDropout(kept, self.dropout if inverted else None)
        return {
            "mask": visible.mask,
            "causal": visible.causal,
            "dropped": dropped,
            "kernel": self.attention == "kernel",
        }

    def _softmax_estimate(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Visible,
        training: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What standard attention gives before its projection.

        And what there is to report of it.
        """
        if self._is_fused(query, training):
            mask, causal = visible.mask, visible.causal
            return fused_estimate(query, key, value, mask, causal), {}
        if visible.blockwise:
            arguments = self._dropped(query, key, visible, training)
            return blockwise_estimate(query, key, value, **arguments), {}
        weights = kriging_weights(query, key, mask=visible.mask)
        survivors = apply_dropout(self.attention_dropout, weights, training)
        return kriging_estimate(survivors, value), {
            "attention_weights": weights
        }

    def _project(self, estimate: Tensor) -> Tensor:
        shape = (-1, ops.shape(estimate)[1], self.num_heads * self._head_dim)
        return apply_dense(self.output_dense, ops.reshape(estimate, shape))

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        """An empty cache of keys and values.

        Args:
            batch_size: Number of sequences.
            length: Number of positions to hold, `S`.

        Returns:
            `"key"` and `"value"`, `(B, S, Hk, C)` in the compute dtype.
        """
        heads = self.num_key_value_heads or self.num_heads
        shape = (batch_size, length, heads, self._head_dim)
        return {
            name: ops.zeros(shape, self.compute_dtype)
            for name in ("key", "value")
        }

    def _output(
        self,
        estimate: Tensor,
        observed: Tensor | None,
        seen: dict[str, Tensor],
        cache: dict[str, Tensor] | None,
    ) -> Any:
        outputs = [self._project(estimate)]
        if observed is not None:
            outputs.append(observed)
        if cache is not None:
            outputs.append(seen)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def compute_output_spec(
        self, state: keras.KerasTensor, *args: Any, **kwargs: Any
    ) -> Any:
        return keras.KerasTensor(state.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "causal": self.causal,
            "normalization": self.normalization,
            "epsilon": self.epsilon,
            "dropout": self.dropout,
            "dropout_mode": self.dropout_mode,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "attention": self.attention,
            "seed": self.seed,
        }


def _is_exported(x: Tensor) -> bool:
    """Whether the call is written down, with the length left open."""
    return not isinstance(x.shape[1], int) or is_written_for_a_server()
