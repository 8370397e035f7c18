"""Observe: attention as kriging, with the precision of what it sees."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._attention import Attention
from keras_bft.layers._filter_layer import PRECISIONS
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._masks import first_mask
from keras_bft.layers._trace import report
from keras_bft.ops import head_log_precision
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_statistics
from keras_bft.ops import kriging_weights
from keras_bft.ops import log_mean_precision
from keras_bft.ops import observation_log_precision
from keras_bft.ops import project_log_precision
from keras_bft.ops import unit_snr_log_precision
from keras_bft.ops import value_log_precision
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
        strength: Optional scalar tensor in place of the layer's strength.
        training: Whether to drop attention weights.

    Returns:
        The innovation `(B, T, D)` and the log-precision of the observation,
        `(B, T, D)` or, with token precision, `(B, T, 1)`, in float32. Only
        the innovation if `log_precision` is not given or `bayesian` is
        `False`. A query that sees no key has a precision of zero (in effect).

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
        query, key, value = self._query_key_value(normalized, keys)
        visible = self._visible_keys(state, padding_mask, attention_mask)
        if not self.bayesian:
            return self._project(
                self._softmax_estimate(query, key, value, visible, training)
            )

        if key_log_precision is None:
            key_log_precision = unit_snr_log_precision(
                state if context is None else keys
            )
        weights = kriging_weights(
            query,
            key,
            self._mean_log_precision(key_log_precision),
            visible,
            strength=self.strength if strength is None else strength,
        )
        survivors = self.attention_dropout(weights, training=training)
        if log_precision is None:
            report(self, kriging_weights=weights)
            return self._project(kriging_estimate(survivors, value))
        estimate, observed = self._observe(
            weights,
            survivors,
            value,
            self._value_log_precision(key_log_precision, spread, keys),
            visible,
            training,
        )
        return self._project(estimate), observed

    def _value_kernel(self) -> Tensor:
        kernel = self.value_dense.kernel
        return ops.reshape(kernel, (kernel.shape[0], -1, self._head_dim))

    def _mean_log_precision(self, key_log_precision: Tensor) -> Tensor | None:
        if not self.kriging_weights:
            return None
        if self.key_precision == "per_head":
            return head_log_precision(key_log_precision, self._value_kernel())
        return log_mean_precision(key_log_precision)

    def _value_log_precision(
        self, key_log_precision: Tensor, spread: Tensor | None, keys: Tensor
    ) -> Tensor:
        if not self.carry_units:
            mean = log_mean_precision(key_log_precision)
            key_heads = self.num_key_value_heads or self.num_heads
            return ops.repeat(mean[..., None], key_heads, axis=-1)
        gamma = None
        if spread is None:
            spread = ops.ones_like(keys[..., 0])
        else:
            gamma = self.norm.gamma
        return value_log_precision(
            key_log_precision, spread, gamma, self._value_kernel()
        )

    def _observe(
        self,
        weights: Tensor,
        survivors: Tensor,
        value: Tensor,
        value_log_precision: Tensor,
        visible: Tensor | None,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        noisy = (
            training and self.dropout > 0 and self.dropout_mode == "inverted"
        )
        seen = kriging_statistics(
            weights if noisy else survivors,
            value,
            value_log_precision,
            visible,
            self.variance,
            self.differentiate_statistics,
        )
        estimate = (
            kriging_estimate(survivors, value) if noisy else seen.estimate
        )
        observed = project_log_precision(
            observation_log_precision(
                seen.residual_variance,
                seen.effective_sample_size,
                seen.log_prior_precision,
                self.prior_dof,
            ),
            ops.reshape(
                self.output_dense.kernel,
                (self.num_heads, self._head_dim, -1),
            ),
            pool=self.precision == "token",
        )
        if not self.differentiate_statistics:
            observed = ops.stop_gradient(observed)
        report(
            self,
            kriging_weights=weights,
            effective_sample_size=seen.effective_sample_size,
            observation_log_precision=observed,
        )
        return estimate, observed

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
