"""The drop-in Transformer layer: Observe, Update and Predict."""

from typing import Any

import keras

from keras_bft.layers._attention import Attention
from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import apply_dropout
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._masks import first_mask
from keras_bft.layers._seeds import part_seed
from keras_bft.layers.bft_attention import BFTAttention
from keras_bft.layers.gated_attention import GatedAttention
from keras_bft.layers.kalman_residual import KalmanResidual
from keras_bft.layers.precision_feed_forward import PrecisionFeedForward
from keras_bft.layers.state_normalization import NORMALIZATIONS
from keras_bft.layers.state_normalization import StateNormalization
from keras_bft.ops import normalized_log_precision
from keras_bft.ops import unit_snr_log_precision
from keras_bft.typing import Tensor

GATED = (False, True, "from_one")
FORMS: dict[str, dict[str, Any]] = {
    "light": {
        "variance": "head",
        "jacobian": "mean",
        "differentiate_statistics": False,
    },
    "full": {
        "variance": "channel",
        "jacobian": "diagonal",
        "differentiate_statistics": True,
    },
}


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLayer(FilterLayer):
    """Bayesian Filtering Transformer layer.

    A Transformer layer that is a step of a Kalman filter: `BFTAttention`
    observes, `KalmanResidual` updates and `PrecisionFeedForward` predicts.
    It takes the place of a standard pre-norm or post-norm layer, with
    self-attention, for a state and its log-precision or for a state alone.

    Args:
        num_heads: Number of query heads.
        feed_forward_dim: Width of the feed-forward network's hidden layer.
        head_dim: Channels of a head. Defaults to `D // num_heads`.
        num_key_value_heads: Number of key and value heads, a divisor of
            `num_heads`. Defaults to `num_heads`.
        causal: Whether a position sees only itself and earlier ones.
        form: `"light"` pools the residual variance over a head, uses the mean
            Jacobian and lets no gradient through the statistics; `"full"`
            keeps the variance of each channel, uses the diagonal Jacobian and
            differentiates the statistics. Defaults to `"light"`.
        variance: `"channel"` or `"head"`; `"auto"` as `form` says.
        jacobian: `"diagonal"`, `"mean"` or `None`; `"auto"` as `form` says.
        differentiate_statistics: A bool; `"auto"` as `form` says.
        precision: `"channel"` carries a log-precision per channel, `"token"`
            one per token: with `variance="head"` the token form, the
            cheapest. Defaults to `"channel"`.
        key_precision: `"shared"` or `"per_head"`, see `BFTAttention`.
        carry_units: Whether precisions are carried from the units of the
            residual stream to those of the values. Defaults to `True`.
        strength: Filter strength `s >= 0`: one is the paper's filter, zero
            the standard layer. Kept in a float32 weight. Defaults to `1.0`.
        trainable_strength: Whether the strength is learned (and kept >= 0).
        initial_log_process_noise: Where the learned `log Q` starts: the log
            of the state's variance, minus two, say. `None` for no process
            noise. Defaults to `-2.0`, for a state of variance one.
        trainable_process_noise: Whether `log Q` is learned. Set it to `False`
            where nothing reads the log-precision that the layer returns, such
            as in the last layer of a model; a layer built for a state alone
            does so itself. Defaults to `True`.
        prior_dof: Degrees of freedom of the prior on the residual variance.
        kriging_weights: `False` is an ablation: attention uses plain softmax
            weights, see `BFTAttention`. Defaults to `True`.
        kalman_gain: `False` is an ablation: what attention observes is added
            whole, see `KalmanResidual`. Defaults to `True`.
        activation: Activation of the feed-forward network.
        gated: Whether the feed-forward network is gated (SwiGLU).
        normalize_first: Pre-norm if `True` (default), else post-norm.
        normalization: `"layer"` (default) or `"rms"`.
        epsilon: Epsilon of the norms. Defaults to `1e-6`.
        dropout: Dropout of the attention's output, of the hidden layer and of
            the feed-forward network's output.
        attention_dropout: Dropout of the attention weights. Defaults to
            `dropout`.
        dropout_mode: `"renormalized"` (default) or `"inverted"`, see
            `AttentionDropout`.
        use_bias: Whether the projections have biases.
        attention_bias: Whether those of the attention have. Defaults to
            `use_bias`.
        kernel_initializer: Initializer of the projections.
        bayesian: `False` makes it the standard Transformer layer: the same
            weights and no filter. Defaults to `True`.
        gated_attention: `True` for `GatedAttention` in a layer with
            `bayesian=False`, `"from_one"` for one whose gate starts at one.
            Defaults to `False`.
        attention: `"auto"` (default), `"blockwise"`, `"dense"` or `"kernel"`:
            how weights are computed, see `BFTAttention`.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        log_precision: `(B, T, D)` or `(B, T, 1)`, natural log of the inverse
            variance of the state. Without it each token starts at a
            signal-to-noise ratio of one and the state alone is returned.
        padding_mask: `(B, T)` bool, `True` at real positions. Defaults to the
            Keras mask of the state.
        attention_mask: `(B, T, T)` bool, `True` where a position may see
            another.
        rotation: `(B, T, 2, C / 2)`, what `RotaryEmbedding` returns.
        cache: Keys seen before, see `BFTAttention`; what `make_cache` or the
            last call returned.
        cache_index: Position in the cache of the first new key.
        weight_statistics: What `weight_statistics()` returned, if at hand.
        training: Whether to use dropout.

    Returns:
        The state `(B, T, D)` in the compute dtype and its log-precision
        `(B, T, D)`, or `(B, T, 1)` with token precision, in float32; the
        state alone if no log-precision was given or `bayesian` is `False`.
        With a cache, the updated cache comes last. The Keras mask passes to
        state and log-precision.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> layer = keras_bft.layers.BFTLayer(2, 16, causal=True)
    >>> state, log_precision = layer(np.ones((1, 3, 8)), np.zeros((1, 3, 1)))
    >>> tuple(state.shape), tuple(log_precision.shape)
    ((1, 3, 8), (1, 3, 8))
    """

    def __init__(
        self,
        num_heads: int,
        feed_forward_dim: int,
        head_dim: int | None = None,
        num_key_value_heads: int | None = None,
        causal: bool = False,
        form: str = "light",
        variance: str = "auto",
        jacobian: str | None = "auto",
        differentiate_statistics: bool | str = "auto",
        precision: str = "channel",
        key_precision: str = "shared",
        carry_units: bool = True,
        strength: float = 1.0,
        trainable_strength: bool = False,
        initial_log_process_noise: float | None = -2.0,
        trainable_process_noise: bool = True,
        prior_dof: float = 1.0,
        kriging_weights: bool = True,
        kalman_gain: bool = True,
        activation: Any = "gelu",
        gated: bool = False,
        normalize_first: bool = True,
        normalization: str = "layer",
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        dropout_mode: str = "renormalized",
        use_bias: bool = True,
        attention_bias: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bayesian: bool = True,
        gated_attention: bool | str = False,
        attention: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive("feed_forward_dim", feed_forward_dim)
        check_choice("form", form, tuple(FORMS))
        check_choice(
            "differentiate_statistics",
            differentiate_statistics,
            (True, False, "auto"),
        )
        check_choice("normalization", normalization, NORMALIZATIONS)
        check_choice("gated_attention", gated_attention, GATED)
        if gated_attention and bayesian:
            raise ValueError(
                "`gated_attention` must be False unless `bayesian` is: a gate "
                "has no precision for the filter. Received: "
                f"gated_attention={gated_attention}, bayesian={bayesian}"
            )
        self._arguments = {
            "num_heads": num_heads,
            "feed_forward_dim": feed_forward_dim,
            "head_dim": head_dim,
            "num_key_value_heads": num_key_value_heads,
            "causal": causal,
            "form": form,
            "variance": variance,
            "jacobian": jacobian,
            "differentiate_statistics": differentiate_statistics,
            "precision": precision,
            "key_precision": key_precision,
            "carry_units": carry_units,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "initial_log_process_noise": initial_log_process_noise,
            "trainable_process_noise": trainable_process_noise,
            "prior_dof": prior_dof,
            "kriging_weights": kriging_weights,
            "kalman_gain": kalman_gain,
            "gated": gated,
            "normalize_first": normalize_first,
            "normalization": normalization,
            "epsilon": epsilon,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "dropout_mode": dropout_mode,
            "use_bias": use_bias,
            "attention_bias": attention_bias,
            "bayesian": bayesian,
            "gated_attention": gated_attention,
            "attention": attention,
            "seed": seed,
        }
        self.bayesian = bayesian
        self.precision = precision
        self.carry_units = carry_units
        self.initial_strength = strength
        self.trainable_strength = trainable_strength
        self.normalize_first = normalize_first
        choices: dict[str, Any] = {
            "variance": variance,
            "jacobian": jacobian,
            "differentiate_statistics": differentiate_statistics,
        }
        chosen = {
            name: FORMS[form][name] if value == "auto" else value
            for name, value in choices.items()
        }
        shared = {
            "normalization": normalization if normalize_first else None,
            "epsilon": epsilon,
            "kernel_initializer": kernel_initializer,
            "dtype": self.dtype_policy,
        }
        filtering = {
            "precision": precision,
            "differentiate_statistics": chosen["differentiate_statistics"],
            "bayesian": bayesian,
        }
        attending = {
            "num_heads": num_heads,
            "head_dim": head_dim,
            "num_key_value_heads": num_key_value_heads,
            "causal": causal,
            "dropout": (
                dropout if attention_dropout is None else attention_dropout
            ),
            "dropout_mode": dropout_mode,
            "use_bias": (
                use_bias if attention_bias is None else attention_bias
            ),
            "attention": attention,
            "seed": seed,
            "name": "attention",
            **shared,
        }
        self.attention: Attention
        if gated_attention:
            self.attention = GatedAttention(
                from_one=gated_attention == "from_one", **attending
            )
        else:
            self.attention = BFTAttention(
                variance=chosen["variance"],
                key_precision=key_precision,
                carry_units=carry_units,
                prior_dof=prior_dof,
                strength=strength,
                kriging_weights=kriging_weights,
                **attending,
                **filtering,
            )
        self.residual_dropout = keras.layers.Dropout(
            dropout,
            seed=part_seed(seed, 1),
            dtype=self.dtype_policy,
            name="residual_dropout",
        )
        self.residual = KalmanResidual(
            strength,
            kalman_gain,
            dtype=self.dtype_policy,
            name="residual",
        )
        self.feed_forward = PrecisionFeedForward(
            feed_forward_dim,
            activation=activation,
            gated=gated,
            jacobian=chosen["jacobian"],
            initial_log_process_noise=initial_log_process_noise,
            trainable_process_noise=trainable_process_noise,
            dropout=dropout,
            use_bias=use_bias,
            seed=part_seed(seed, 2),
            name="feed_forward",
            **shared,
            **filtering,
        )
        self.post_norms: list[StateNormalization] = []
        if not normalize_first:
            self.post_norms = [
                StateNormalization(
                    normalization, epsilon, dtype=self.dtype_policy, name=name
                )
                for name in ("attention_norm", "feed_forward_norm")
            ]

    def build(
        self,
        state_shape: tuple[int | None, ...],
        log_precision_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self.attention.build(state_shape)
        self.feed_forward.build(state_shape, log_precision_shape)
        for norm in self.post_norms:
            norm.build(state_shape)
        if self.bayesian:
            self.strength = self.add_weight(
                shape=(),
                initializer=keras.initializers.Constant(self.initial_strength),
                trainable=self.trainable_strength,
                constraint="non_neg",
                dtype=self.statistics_dtype,
                autocast=False,
                name="strength",
            )
        self.built = True

    def call(
        self,
        state: Tensor,
        log_precision: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotation: Tensor | None = None,
        cache: dict[str, Tensor] | None = None,
        cache_index: int | Tensor = 0,
        weight_statistics: dict[str, Any] | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        state_mask: Tensor | None = None,
    ) -> Any:
        state = self.cast_state(state)
        # The parts' `call`: around it Keras would do once more, and at length,
        # what it did around this one.
        masks = {
            "padding_mask": first_mask(padding_mask, mask, state_mask),
            "attention_mask": attention_mask,
        }
        keys: dict[str, Any] = {"rotation": rotation}
        if cache is not None:
            keys |= {"cache": cache, "cache_index": cache_index}
        if not self.bayesian:
            innovation = self.attention.call(
                state, training=training, **masks, **keys
            )
            if cache is not None:
                innovation, cache = innovation
            innovation = apply_dropout(
                self.residual_dropout, innovation, training
            )
            state, _ = self._post_norm(0, state + innovation, None)
            state = self.feed_forward.call(state, training=training)
            state, _ = self._post_norm(1, state, None)
            return state if cache is None else (state, cache)

        given = log_precision is not None
        if log_precision is None:
            log_precision = unit_snr_log_precision(state)
        log_precision = self.cast_statistic(log_precision)
        if weight_statistics is None:
            weight_statistics = {"attention": None, "feed_forward": None}
        innovation, observed, *updated = self.attention.call(
            state,
            log_precision,
            strength=self.strength,
            weight_statistics=weight_statistics["attention"],
            training=training,
            **masks,
            **keys,
        )
        innovation = apply_dropout(self.residual_dropout, innovation, training)
        state, log_precision = self.residual.call(
            state, log_precision, innovation, observed, strength=self.strength
        )
        state, log_precision = self._post_norm(0, state, log_precision)
        state, log_precision = self.feed_forward.call(
            state,
            log_precision,
            weight_statistics=weight_statistics["feed_forward"],
            training=training,
        )
        state, log_precision = self._post_norm(1, state, log_precision)
        outputs = (state, log_precision) if given else (state,)
        outputs = (*outputs, *updated)
        return outputs if len(outputs) > 1 else state

    def weight_statistics(self) -> dict[str, Any]:
        """What the filter reads of the weights, the same for every token.

        A decoder computes it once and passes it to the call of each token.
        """
        if not self.bayesian:
            return {}
        return {
            "attention": self.attention.weight_statistics(),
            "feed_forward": self.feed_forward.weight_statistics(),
        }

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        """An empty cache, see `BFTAttention.make_cache`."""
        return self.attention.make_cache(batch_size, length)

    def _post_norm(
        self, index: int, state: Tensor, log_precision: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if self.normalize_first:
            return state, log_precision
        norm = self.post_norms[index]
        state, spread = norm.call(state)
        if log_precision is not None and self.carry_units:
            log_precision = normalized_log_precision(
                log_precision, spread, norm.gamma
            )
        return state, log_precision

    def compute_output_spec(
        self,
        state: keras.KerasTensor,
        log_precision: keras.KerasTensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        output = keras.KerasTensor(state.shape, dtype=self.compute_dtype)
        if log_precision is None or not self.bayesian:
            return output
        return output, self.carried_spec(state, log_precision)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **self._arguments,
            "activation": keras.activations.serialize(
                self.feed_forward.activation
            ),
            "kernel_initializer": keras.initializers.serialize(
                self.attention.kernel_initializer
            ),
        }
