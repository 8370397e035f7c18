"""Observe, as HSTU does: attention without softmax, through a gate."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._cache import update_cache
from keras_bft.layers._filter_layer import PRECISIONS
from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import check_rate
from keras_bft.layers._filter_layer import copy_initializer
from keras_bft.layers._filter_layer import head_width
from keras_bft.layers._filter_layer import known_width
from keras_bft.layers._masks import visible_keys
from keras_bft.layers._trace import is_heard
from keras_bft.layers._trace import report
from keras_bft.layers.relative_bias import RelativeBias
from keras_bft.layers.state_normalization import StateNormalization
from keras_bft.ops import NO_OBSERVATION
from keras_bft.ops import activation_derivative
from keras_bft.ops import kriging_estimate
from keras_bft.ops import log_mean_precision
from keras_bft.ops import project_log_precision
from keras_bft.ops import sandwich_observation
from keras_bft.ops import sandwich_weights
from keras_bft.ops import value_log_precision
from keras_bft.ops.kriging_statistics import VARIANCES
from keras_bft.ops.sandwich import known_keys
from keras_bft.typing import Tensor

# Smallest variance that has a logarithm. Its inverse, times the largest
# variance of a value, is still a float32.
_SMALLEST_VARIANCE = 1.0e-20


class HSTUAttention(FilterLayer):
    """The part of `BFTHSTULayer` before the residual connection.

    Its arguments, and those of its call, are described there.

    Returns:
        The innovation `(B, T, D)` and, if a log-precision is given, that of
        the innovation, `(B, T, D)` or, with token precision, `(B, T, 1)`. With
        a cache, the updated cache comes last.
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        head_dim: int | None,
        num_time_buckets: int,
        causal: bool,
        variance: str,
        differentiate_statistics: bool,
        precision: str,
        carry_units: bool,
        activation: Any,
        epsilon: float,
        dropout: float,
        kernel_initializer: Any,
        seed: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if head_dim is not None:
            check_positive("head_dim", head_dim)
        check_choice("variance", variance, VARIANCES)
        check_choice("precision", precision, PRECISIONS)
        check_rate("dropout", dropout)
        self.num_heads = num_heads
        self.max_length = max_length
        self.head_dim = head_dim
        self.causal = causal
        self.variance = variance
        self.differentiate_statistics = differentiate_statistics
        self.precision = precision
        self.carry_units = carry_units
        self.activation = keras.activations.get(activation)
        self._activation_derivative = activation_derivative(self.activation)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.norm = StateNormalization(
            "layer", epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.relative_bias = RelativeBias(
            num_heads,
            max_length,
            num_time_buckets,
            causal,
            dtype="float32",
            name="relative_bias",
        )
        self.output_dropout = keras.layers.Dropout(
            dropout, seed=seed, dtype=self.dtype_policy, name="output_dropout"
        )

    def build(
        self,
        state_shape: tuple[int | None, ...],
        timestamps_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        width = known_width(state_shape)
        self._head_dim = head_width(self.num_heads, self.head_dim, state_shape)
        units = self.num_heads * self._head_dim
        self.norm.build(state_shape)
        self.input_dense = self._dense("input", 4 * units, use_bias=False)
        self.input_dense.build(state_shape)
        self.relative_bias.build(state_shape[:2], timestamps_shape)
        self.output_dense = self._dense("output", width)
        self.output_dense.build((*state_shape[:-1], units))
        self.built = True

    def _dense(
        self, name: str, units: int, use_bias: bool = True
    ) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            use_bias=use_bias,
            kernel_initializer=copy_initializer(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self,
        state: Tensor,
        log_precision: Tensor | None = None,
        timestamps: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position: Tensor | None = None,
        cache: dict[str, Tensor] | None = None,
        cache_index: int | Tensor = 0,
        strength: float | Tensor = 1.0,
        training: bool = False,
    ) -> Any:
        length = ops.shape(state)[1]
        _check_cache(cache, timestamps, attention_mask)
        visible = visible_keys(
            padding_mask,
            attention_mask,
            length if self.causal and cache is None else None,
        )
        if position is None:
            counted = padding_mask if cache is None else None
            position = _positions(state, counted, cache_index)
        normalized, spread = self.norm(state)
        parts = ops.split(self.input_dense(normalized), 4, axis=-1)
        parts = [self._split_heads(part) for part in parts]
        gate, value, query, key = (self.activation(part) for part in parts)
        seen = {"key": key, "value": value, "position": position}
        if timestamps is not None:
            seen["timestamps"] = timestamps
        if log_precision is not None:
            seen |= self._key_precisions(log_precision, spread, parts[1])
        if cache is not None:
            seen = update_cache(cache, cache_index, seen)
        weights = self._weights(query, position, timestamps, seen)

        if log_precision is None:
            if visible is not None:
                weights = ops.where(visible[:, None], weights, 0.0)
            report(self, attention_weights=weights)
            estimate = kriging_estimate(weights, seen["value"])
            innovation, _ = self._innovation(estimate, gate, training)
            return innovation if cache is None else (innovation, seen)

        key_log_precision = seen["log_precision"][..., None]
        known = known_keys(key_log_precision)[:, None]
        visible = known if visible is None else ops.logical_and(visible, known)
        self._report(weights, key_log_precision, visible, strength)
        estimate, variance = sandwich_observation(
            weights,
            seen["value"],
            key_log_precision,
            visible,
            seen.get("value_log_precision"),
            strength,
            self.variance,
            self.differentiate_statistics,
        )
        innovation, inner_spread = self._innovation(estimate, gate, training)
        observed = self._observed(variance, inner_spread, gate)
        observes = ops.any(visible, axis=-1)[..., None]
        observed = ops.where(observes, observed, NO_OBSERVATION)
        outputs = (innovation, observed)
        return outputs if cache is None else (*outputs, seen)

    def make_cache(
        self, batch_size: int, length: int, bayesian: bool
    ) -> dict[str, Tensor]:
        """An empty cache, see `BFTHSTULayer.make_cache`."""
        shape = (batch_size, length)
        values = (*shape, self.num_heads, self._head_dim)
        cache = {
            "key": ops.zeros(values, self.compute_dtype),
            "value": ops.zeros(values, self.compute_dtype),
            "position": ops.zeros(shape, "int32"),
        }
        if self.relative_bias.time_table is not None:
            cache["timestamps"] = ops.zeros(shape, "int32")
        if bayesian:
            dtype = self.statistics_dtype
            cache["log_precision"] = ops.zeros(shape, dtype)
            if self.carry_units:
                cache["value_log_precision"] = ops.zeros(values[:-1], dtype)
        return cache

    def _report(
        self,
        weights: Tensor,
        key_log_precision: Tensor,
        visible: Tensor,
        strength: Tensor | float,
    ) -> None:
        if not is_heard("kriging_weights", "effective_sample_size"):
            return
        used = sandwich_weights(weights, key_log_precision, visible, strength)
        total = ops.square(ops.sum(ops.abs(used), axis=-1))
        squares = ops.sum(ops.square(used), axis=-1)
        # Kish's, of weights that need not sum to one.
        size = total / ops.maximum(squares, _SMALLEST_VARIANCE)
        report(
            self,
            kriging_weights=used,
            effective_sample_size=ops.transpose(size, (0, 2, 1))[..., None],
        )

    def _split_heads(self, x: Tensor) -> Tensor:
        return ops.reshape(
            x, (-1, ops.shape(x)[1], self.num_heads, self._head_dim)
        )

    def _weights(
        self,
        query: Tensor,
        position: Tensor,
        timestamps: Tensor | None,
        seen: dict[str, Tensor],
    ) -> Tensor:
        """Weights of all pairs, `(B, H, T, S)`, in float32."""
        bias = self.relative_bias(
            position,
            timestamps,
            key_position=seen["position"],
            key_timestamps=seen.get("timestamps"),
        )
        logits = ops.einsum("bthc,bshc->bhts", query, seen["key"])
        logits = self.cast_statistic(logits) + self.cast_statistic(bias)
        return ops.silu(logits) / self.max_length

    def _innovation(
        self, estimate: Tensor, gate: Tensor, training: bool
    ) -> tuple[Tensor, Tensor]:
        """Update of the state, and the spread of the inner norm, `(B, T)`."""
        x = self.cast_statistic(estimate)
        x = x - ops.mean(x, axis=(-2, -1), keepdims=True)
        mean_square = ops.mean(ops.square(x), axis=(-2, -1), keepdims=True)
        spread = ops.sqrt(mean_square + self.epsilon)
        gated = self.cast_state(x / spread) * gate
        shape = (-1, ops.shape(x)[1], self.num_heads * self._head_dim)
        gated = self.output_dropout(
            ops.reshape(gated, shape), training=training
        )
        return self.output_dense(gated), spread[..., 0, 0]

    def _key_precisions(
        self, log_precision: Tensor, spread: Tensor, pre_activation: Tensor
    ) -> dict[str, Tensor]:
        """Log-precisions of the keys, and of their values in own units."""
        precisions = {"log_precision": log_mean_precision(log_precision)}
        if self.carry_units:
            kernel = ops.split(self.input_dense.kernel, 4, axis=-1)[1]
            precisions["value_log_precision"] = value_log_precision(
                log_precision,
                spread,
                self.norm.gamma,
                ops.reshape(kernel, (-1, self.num_heads, self._head_dim)),
                self._activation_derivative(pre_activation),
            )
        return precisions

    def _observed(
        self, variance: Tensor, spread: Tensor, gate: Tensor
    ) -> Tensor:
        """Log-precision of the innovation, `(B, T, D)` or `(B, T, 1)`."""
        variance = ops.maximum(variance, _SMALLEST_VARIANCE)
        squared = ops.square(self.cast_statistic(gate))
        squared = ops.maximum(squared, _SMALLEST_VARIANCE)
        log_spread = ops.log(spread)[..., None, None]
        log_variance = ops.log(variance) + ops.log(squared) - 2.0 * log_spread
        shape = (self.num_heads, self._head_dim, -1)
        observed = project_log_precision(
            -log_variance,
            ops.reshape(self.output_dense.kernel, shape),
            pool=self.precision == "token",
        )
        if self.differentiate_statistics:
            return observed
        return ops.stop_gradient(observed)


def _positions(
    state: Tensor, padding_mask: Tensor | None, cache_index: int | Tensor
) -> Tensor:
    """Positions of the items of a call, `(B, T)` int32."""
    if padding_mask is not None:
        return ops.cumsum(ops.cast(padding_mask, "int32"), axis=1)
    batch, length = ops.shape(state)[:2]
    position = ops.arange(length, dtype="int32")
    position = position + ops.cast(cache_index, "int32")
    return ops.broadcast_to(position[None], (batch, length))


def _check_cache(
    cache: dict[str, Tensor] | None,
    timestamps: Tensor | None,
    attention_mask: Tensor | None,
) -> None:
    if cache is None:
        return
    if attention_mask is None:
        raise ValueError(
            "With a cache, `attention_mask` must say which of its positions "
            "may be seen. Received: attention_mask=None"
        )
    if "timestamps" in cache and timestamps is None:
        raise ValueError(
            "A cache that keeps timestamps needs those of the new items. "
            f"Received: timestamps=None, a cache with {sorted(cache)}"
        )
