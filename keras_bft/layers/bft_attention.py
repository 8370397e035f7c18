"""Observe: attention as kriging, with the precision of what it sees."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._attention import Attention
from keras_bft.layers._attention import Visible
from keras_bft.layers._cache import update_cache
from keras_bft.layers._filter_layer import PRECISIONS
from keras_bft.layers._filter_layer import apply_dropout
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import dense_kernel
from keras_bft.layers._masks import first_mask
from keras_bft.layers._trace import report
from keras_bft.ops import KrigingObservation
from keras_bft.ops import blockwise_estimate
from keras_bft.ops import carried_log_precision
from keras_bft.ops import head_log_precision
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_observation
from keras_bft.ops import kriging_statistics
from keras_bft.ops import kriging_weights
from keras_bft.ops import log_mean_precision
from keras_bft.ops import projected_observation_log_precision
from keras_bft.ops import squared_projection
from keras_bft.ops import squared_value_gain
from keras_bft.ops import unit_snr_log_precision
from keras_bft.ops.kriging_statistics import VARIANCES
from keras_bft.typing import Tensor

KEY_PRECISIONS = ("shared", "per_head")


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTAttention(Attention):
    """Multi-head attention that observes a value and its precision.

    Keys count by their precision (kriging weights), and the residuals of the
    values around the estimate, the effective sample size and the keys' own
    precision give the precision of the observation. The weights are the
    paper's; the estimator of the precision is derived for this library (see
    `keras_bft.ops.observation_log_precision`).

    Args:
        num_heads: Number of query heads.
        head_dim: Channels of a head. Defaults to `D // num_heads`.
        num_key_value_heads: Number of key and value heads, a divisor of
            `num_heads` (grouped queries). Defaults to `num_heads`.
        causal: Whether a query sees only its own and earlier positions.
        variance: `"channel"` keeps a residual variance per channel, `"head"`
            pools it over the channels of a head. Defaults to `"head"`.
        precision: `"channel"` gives the observation a precision per channel
            of the state, `"token"` one per token: with `variance="head"` the
            token form, the cheapest. Defaults to `"channel"`.
        key_precision: `"shared"` reads the mean precision of a key for all
            heads, `"per_head"` the precision of the channels that a head's
            value kernel uses. Defaults to `"shared"`.
        normalization: `"layer"` or `"rms"`: the norm applied to the state
            first (pre-norm). `None` applies none. Defaults to `"layer"`.
        epsilon: Epsilon of the norm. Defaults to `1e-6`.
        carry_units: Whether the keys' precision is carried from the units of
            the residual stream to those of the values. Defaults to `True`.
        prior_dof: Degrees of freedom of the prior on the residual variance.
            Defaults to `1.0`, one pseudo-observation.
        differentiate_statistics: Whether gradients flow through the
            observation precision. Defaults to `False`, a plug-in statistic.
        dropout: Share of attention weights dropped in training.
        dropout_mode: `"renormalized"` treats dropped keys as missing
            observations and computes every statistic from the survivors;
            `"inverted"` is the usual dropout, with the statistics of the
            undropped weights. Defaults to `"renormalized"`.
        use_bias: Whether the projections have biases. Defaults to `True`.
        kernel_initializer: Initializer of the projections.
        strength: Filter strength `s >= 0`, the exponent of the keys'
            precision. Defaults to `1.0`; zero gives plain softmax weights.
        kriging_weights: `False` is an ablation: keys count by plain softmax
            weights, whatever their precision, and the observation's precision
            is computed from those. Defaults to `True`.
        bayesian: `False` makes it the standard attention layer: the same
            weights and no filter. Defaults to `True`.
        attention: How weights are computed, with the same results:
            `"blockwise"` never holds all of them, so that memory grows with
            `T + S`, and computes those of a causal layer that count;
            `"dense"` holds them all. `"kernel"` is a fused GPU kernel, in
            Pallas with JAX and in Triton with PyTorch (extra `triton`), and
            blockwise elsewhere. It is experimental: tested without a GPU so
            far, and not timed. `"auto"` (default) is the faster of the others:
            blockwise, but dense on TensorFlow and PyTorch for up to 256
            positions, in exports that leave the length open, and while
            `keras_bft.diagnostics.trace` reads the weights.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        log_precision: Log-precision of the state, `(B, T, D)` or
            `(B, T, 1)`. Without it, keys start at a signal-to-noise ratio of
            one and only the innovation is returned.
        context: `(B, S, E)`: attend to this instead of the state (cross
            attention). It is not normalised by this layer.
        context_log_precision: `(B, S, E)` or `(B, S, 1)`, default a
            signal-to-noise ratio of one.
        padding_mask: `(B, S)` bool, `True` at the real keys: of the context
            if there is one, else of the state. Defaults to the Keras mask.
        attention_mask: `(B, T, S)` bool, `True` where a query may see a key.
        rotation: `(B, T, 2, C / 2)`, what `RotaryEmbedding` returns, by which
            queries and keys are turned.
        cache: Keys seen before, what `make_cache` or the last call returned.
            The keys of this call are written into it from `cache_index` on,
            and attention is to all of it, so `attention_mask`, `(B, T, S)`,
            has to say which of its `S` positions may be seen.
        cache_index: Position in the cache of the first new key.
        weight_statistics: What `weight_statistics()` returned, if at hand.
        strength: Optional scalar tensor in place of the layer's strength.
        training: Whether to drop attention weights.

    Returns:
        The innovation `(B, T, D)` and the log-precision of the observation,
        `(B, T, D)` or, with token precision, `(B, T, 1)`, in float32. Only
        the innovation if `log_precision` is not given or `bayesian` is
        `False`. With a cache, the updated cache comes last. A query that sees
        no key has a precision of zero (in effect).

    Raises:
        ValueError: If an argument is outside its domain, or a causal layer is
            given a context.

    Example:

    >>> attention = keras_bft.layers.BFTAttention(num_heads=2, causal=True)
    >>> state = np.random.normal(size=(2, 5, 8))
    >>> innovation, observed = attention(state, np.zeros((2, 5, 1)))
    >>> tuple(innovation.shape), tuple(observed.shape)
    ((2, 5, 8), (2, 5, 8))
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        causal: bool = False,
        variance: str = "head",
        precision: str = "channel",
        key_precision: str = "shared",
        normalization: str | None = "layer",
        epsilon: float = 1e-6,
        carry_units: bool = True,
        prior_dof: float = 1.0,
        differentiate_statistics: bool = False,
        dropout: float = 0.0,
        dropout_mode: str = "renormalized",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        strength: float = 1.0,
        kriging_weights: bool = True,
        bayesian: bool = True,
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
        check_choice("variance", variance, VARIANCES)
        check_choice("precision", precision, PRECISIONS)
        check_choice("key_precision", key_precision, KEY_PRECISIONS)
        if strength < 0:
            raise ValueError(
                "`strength` must be zero or more. "
                f"Received: strength={strength}"
            )
        if prior_dof <= 0:
            raise ValueError(
                f"`prior_dof` must be positive. Received: prior_dof={prior_dof}"
            )
        self.variance = variance
        self.precision = precision
        self.key_precision = key_precision
        self.carry_units = carry_units
        self.prior_dof = prior_dof
        self.differentiate_statistics = differentiate_statistics
        self.strength = strength
        self.kriging_weights = kriging_weights
        self.bayesian = bayesian

    def build(
        self,
        state_shape: tuple[int | None, ...],
        context_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self._build_parts(
            state_shape, state_shape if context_shape is None else context_shape
        )
        self.built = True

    def call(
        self,
        state: Tensor,
        log_precision: Tensor | None = None,
        context: Tensor | None = None,
        context_log_precision: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotation: Tensor | None = None,
        cache: dict[str, Tensor] | None = None,
        cache_index: int | Tensor = 0,
        weight_statistics: dict[str, Tensor] | None = None,
        strength: Tensor | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        state_mask: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if context is None:
            padding_mask = first_mask(padding_mask, mask, state_mask)
        else:
            if self.causal:
                raise ValueError(
                    "A causal layer attends to its own state only: positions "
                    "of a context have no order relative to it. "
                    f"Received: context of shape {context.shape}"
                )
            padding_mask = first_mask(padding_mask, context_mask)
        state = self.cast_state(state)
        if log_precision is not None:
            log_precision = self.cast_statistic(log_precision)
        normalized, spread = self._normalize(state)
        keys, key_log_precision = normalized, log_precision
        if context is not None:
            keys = self.cast_state(context)
            key_log_precision, spread = context_log_precision, None
            if key_log_precision is not None:
                key_log_precision = self.cast_statistic(key_log_precision)
        query, key, value = self._query_key_value(normalized, keys, rotation)
        seen = {"key": key, "value": value}
        if not weight_statistics:
            weight_statistics = self.weight_statistics(context is not None)
        if self.bayesian:
            if key_log_precision is None:
                key_log_precision = unit_snr_log_precision(
                    state if context is None else keys
                )
            seen |= self._key_precisions(
                key_log_precision, spread, weight_statistics
            )
        if cache is not None:
            seen = update_cache(cache, cache_index, seen)
        visible = self._visible_keys(
            state, padding_mask, attention_mask, cache is not None
        )
        if not self.bayesian:
            estimate, reported = self._softmax_estimate(
                query, seen["key"], seen["value"], visible, training
            )
            report(self, **reported)
            return self._output(estimate, None, seen, cache)
        strength = self.strength if strength is None else strength
        observe = self._blockwise if visible.blockwise else self._dense
        estimate, observation, reported = observe(
            query, seen, visible, strength, training, log_precision is not None
        )
        observed = None
        if observation is not None:
            observed = self._observed_log_precision(
                observation, weight_statistics
            )
            reported |= {
                "effective_sample_size": observation.effective_sample_size,
                "observation_log_precision": observed,
            }
        report(self, **reported)
        return self._output(estimate, observed, seen, cache)

    def weight_statistics(self, context: bool = False) -> dict[str, Tensor]:
        """What the filter reads of the weights, the same for every token.

        A decoder computes it once and passes it to the call of each token.

        Args:
            context: Whether the keys are those of a context, which this layer
                does not normalise.
        """
        if not self.bayesian:
            return {}
        statistics = {
            "squared_projection": squared_projection(
                ops.reshape(
                    dense_kernel(self.output_dense),
                    (self.num_heads, self._head_dim, -1),
                ),
                self.variance == "head",
                self.precision == "token",
            )
        }
        if self.carry_units or self.key_precision == "per_head":
            statistics["value_kernel"] = self._value_kernel()
        if self.carry_units:
            normalized = self.normalization is not None and not context
            gamma = self.norm.gamma if normalized else None
            statistics["squared_value_gain"] = squared_value_gain(
                statistics["value_kernel"], gamma
            )
        return statistics

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        """An empty cache of keys, values and their precisions.

        Args:
            batch_size: Number of sequences.
            length: Number of positions to hold, `S`.

        Returns:
            `"key"` and `"value"`, `(B, S, Hk, C)` in the compute dtype, and
            of a Bayesian layer `"log_precision"`, `(B, S)` or per head
            `(B, S, Hk)`, and `"value_log_precision"`, `(B, S, Hk)`, float32.
        """
        cache = super().make_cache(batch_size, length)
        if self.bayesian:
            heads = self.num_key_value_heads or self.num_heads
            shape = (batch_size, length, heads)
            dtype = self.statistics_dtype
            cache["value_log_precision"] = ops.zeros(shape, dtype)
            if self.kriging_weights:
                shared = self.key_precision == "shared"
                cache["log_precision"] = ops.zeros(
                    shape[:2] if shared else shape, dtype
                )
        return cache

    def _value_kernel(self) -> Tensor:
        kernel = dense_kernel(self.value_dense)
        return ops.reshape(kernel, (kernel.shape[0], -1, self._head_dim))

    def _key_precisions(
        self,
        log_precision: Tensor,
        spread: Tensor | None,
        weight_statistics: dict[str, Tensor],
    ) -> dict[str, Tensor]:
        """Log-precisions of the keys, and of their values in own units."""
        mean = log_mean_precision(log_precision)
        precisions = {}
        if self.kriging_weights:
            precisions["log_precision"] = mean
            if self.key_precision == "per_head":
                precisions["log_precision"] = head_log_precision(
                    log_precision, weight_statistics["value_kernel"]
                )
        if not self.carry_units:
            heads = self.num_key_value_heads or self.num_heads
            carried = ops.repeat(mean[..., None], heads, axis=-1)
        else:
            if spread is None:
                spread = ops.ones_like(mean)
            carried = carried_log_precision(
                mean, spread, weight_statistics["squared_value_gain"]
            )
        return precisions | {"value_log_precision": carried}

    def _blockwise(
        self,
        query: Tensor,
        keys: dict[str, Tensor],
        visible: Visible,
        strength: float | Tensor,
        training: bool,
        observed: bool,
    ) -> tuple[Tensor, KrigingObservation | None, dict[str, Tensor]]:
        """The estimate, the observation if it is wanted, and what to report."""
        key, value = keys["key"], keys["value"]
        arguments = {
            "mean_log_precision": keys.get("log_precision"),
            "strength": strength,
            **self._dropped(query, key, visible, training),
        }
        if not observed:
            return blockwise_estimate(query, key, value, **arguments), None, {}
        observation = kriging_observation(
            query,
            key,
            value,
            value_log_precision=keys["value_log_precision"],
            variance=self.variance,
            differentiate=self.differentiate_statistics,
            **arguments,
        )
        return observation.estimate, observation, {}

    def _dense(
        self,
        query: Tensor,
        keys: dict[str, Tensor],
        visible: Visible,
        strength: float | Tensor,
        training: bool,
        observed: bool,
    ) -> tuple[Tensor, KrigingObservation | None, dict[str, Tensor]]:
        """What `_blockwise` returns, from weights that are held."""
        value = keys["value"]
        weights = kriging_weights(
            query,
            keys["key"],
            keys.get("log_precision"),
            visible.mask,
            strength=strength,
        )
        reported = {"kriging_weights": weights}
        survivors = apply_dropout(self.attention_dropout, weights, training)
        if not observed:
            return kriging_estimate(survivors, value), None, reported
        noisy = (
            training and self.dropout > 0 and self.dropout_mode == "inverted"
        )
        observation = kriging_statistics(
            weights if noisy else survivors,
            value,
            keys["value_log_precision"],
            visible.mask,
            self.variance,
            self.differentiate_statistics,
        )
        estimate = observation.estimate
        if noisy:
            estimate = kriging_estimate(survivors, value)
        return estimate, observation, reported

    def _observed_log_precision(
        self,
        observation: KrigingObservation,
        weight_statistics: dict[str, Tensor],
    ) -> Tensor:
        observed = projected_observation_log_precision(
            observation.residual_variance,
            observation.effective_sample_size,
            observation.log_prior_precision,
            weight_statistics["squared_projection"],
            self.prior_dof,
        )
        if not self.differentiate_statistics:
            observed = ops.stop_gradient(observed)
        return observed

    def compute_output_spec(
        self,
        state: keras.KerasTensor,
        log_precision: keras.KerasTensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        innovation = super().compute_output_spec(state)
        if log_precision is None or not self.bayesian:
            return innovation
        width = 1 if self.precision == "token" else state.shape[-1]
        return innovation, keras.KerasTensor(
            (*state.shape[:-1], width), dtype=self.statistics_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "variance": self.variance,
            "precision": self.precision,
            "key_precision": self.key_precision,
            "carry_units": self.carry_units,
            "prior_dof": self.prior_dof,
            "differentiate_statistics": self.differentiate_statistics,
            "strength": self.strength,
            "kriging_weights": self.kriging_weights,
            "bayesian": self.bayesian,
        }
