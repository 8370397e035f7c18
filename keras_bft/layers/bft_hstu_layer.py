"""The HSTU layer: Observe without softmax, Update and Predict."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import known_width
from keras_bft.layers._hstu_attention import HSTUAttention
from keras_bft.layers._masks import first_mask
from keras_bft.layers._trace import report
from keras_bft.layers.bft_layer import FORMS
from keras_bft.layers.kalman_residual import KalmanResidual
from keras_bft.ops import predict_log_precision
from keras_bft.ops import unit_snr_log_precision
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTHSTULayer(FilterLayer):
    """Bayesian Filtering HSTU layer.

    The layer of HSTU (arXiv 2402.17152) as a step of a Kalman filter:

    ```
    U, V, Q, K = split(act(norm(h) W_uvqk))
    A          = silu(Q K^T + relative bias) / N        over the visible keys
    h'         = h + gain * (W_o (norm(A V) * U) + b_o)
    ```

    The inner norm acts on all heads together and has no weights. With
    `bayesian=False` the gain is one: the layer of that paper. The filter is
    derived for this library: keys count by their relative precision, and
    `keras_bft.ops.sandwich_observation` gives the variance of `A V`. The
    delta method carries it through the norm (with the spread held fixed), the
    gate (times `U^2`) and the output projection. Predict has no network: the
    precision loses the learned process noise alone.

    Args:
        num_heads: Number of heads.
        max_length: `N`, the largest number of items of a sequence. It is a
            constant, so that padding changes nothing. Items further apart
            than that share a relative bias.
        head_dim: Channels of a head in `U`, `V`, `Q` and `K`. Defaults to
            `D // num_heads`.
        num_time_buckets: Number of the last bucket of the time between two
            items, see `RelativeBias`; zero ignores timestamps. Defaults to
            `128`.
        causal: Whether a position sees only itself and earlier ones.
            Defaults to `True`.
        form: `"light"` pools the variance over a head and lets no gradient
            through it; `"full"` keeps the variance of each channel and
            differentiates it. Defaults to `"light"`.
        variance: `"channel"` or `"head"`; `"auto"` as `form` says.
        differentiate_statistics: A bool; `"auto"` as `form` says.
        precision: `"channel"` carries a log-precision per channel, `"token"`
            one per token. Defaults to `"channel"`.
        carry_units: Whether precisions are carried from the units of the
            residual stream to those of the values. Defaults to `True`.
        strength: Filter strength `s >= 0`: zero is the layer of the paper
            above. Kept in a float32 weight. Defaults to `1.0`.
        trainable_strength: Whether the strength is learned (and kept >= 0).
        initial_log_process_noise: Where the learned `log Q` starts; `None`
            for no process noise. Defaults to `-2.0`, for a state of variance
            one.
        trainable_process_noise: Whether `log Q` is learned. Set it to `False`
            where nothing reads the log-precision that the layer returns; a
            layer built for a state alone does so itself. Defaults to `True`.
        activation: Elementwise activation of `U`, `V`, `Q` and `K`. Defaults
            to `"silu"`. That of the attention is always SiLU.
        epsilon: Epsilon of both norms. Defaults to `1e-6`.
        dropout: Dropout before the output projection.
        kernel_initializer: Initializer of the projections.
        bayesian: `False` makes it the standard HSTU layer: the same weights
            and no filter. Defaults to `True`.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        log_precision: `(B, T, D)` or `(B, T, 1)`, natural log of the inverse
            variance of the state. Without it each token starts at a
            signal-to-noise ratio of one and the state alone is returned.
        timestamps: `(B, T)` times of the items, in seconds, see
            `RelativeBias`. What stands at padding does not matter.
        padding_mask: `(B, T)` bool, `True` at real positions. Defaults to the
            Keras mask of the state. Positions are counted over these.
        attention_mask: `(B, T, T)` bool, `True` where a position may see
            another.
        position: `(B, T)` int, positions of the items. Defaults to counting
            them, with a cache from `cache_index` on.
        cache: Keys seen before, what `make_cache` or the last call returned.
            The keys of this call are written into it from `cache_index` on,
            and attention is to all of it: `attention_mask`, `(B, T, S)`, alone
            says which of its `S` positions may be seen, whatever `causal` is,
            together with `padding_mask`, `(B, S)`, if there is one.
        cache_index: Index in the cache of the first new key.
        training: Whether to use dropout.

    Returns:
        The state `(B, T, D)` and its log-precision, `(B, T, D)` or with token
        precision of the width of the input's, in float32. The state alone if
        no log-precision is given or `bayesian` is `False`. With a cache, the
        updated cache comes last. A position that sees no key observes nothing.

    Raises:
        ValueError: If an argument is outside its domain, timestamps are given
            to a layer that was built without, or a cache comes without an
            attention mask or without the timestamps that it keeps.

    Example:

    >>> layer = keras_bft.layers.BFTHSTULayer(num_heads=2, max_length=5)
    >>> state, log_precision = layer(
    ...     np.random.normal(size=(1, 3, 8)), np.zeros((1, 3, 1)),
    ...     timestamps=np.array([[0, 60, 86400]], "int32"))
    >>> tuple(state.shape), tuple(log_precision.shape)
    ((1, 3, 8), (1, 3, 8))
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        head_dim: int | None = None,
        num_time_buckets: int = 128,
        causal: bool = True,
        form: str = "light",
        variance: str = "auto",
        differentiate_statistics: bool | str = "auto",
        precision: str = "channel",
        carry_units: bool = True,
        strength: float = 1.0,
        trainable_strength: bool = False,
        initial_log_process_noise: float | None = -2.0,
        trainable_process_noise: bool = True,
        activation: Any = "silu",
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        bayesian: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("form", form, tuple(FORMS))
        check_choice(
            "differentiate_statistics",
            differentiate_statistics,
            (True, False, "auto"),
        )
        self._arguments = {
            "num_heads": num_heads,
            "max_length": max_length,
            "head_dim": head_dim,
            "num_time_buckets": num_time_buckets,
            "causal": causal,
            "form": form,
            "variance": variance,
            "differentiate_statistics": differentiate_statistics,
            "precision": precision,
            "carry_units": carry_units,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "initial_log_process_noise": initial_log_process_noise,
            "trainable_process_noise": trainable_process_noise,
            "epsilon": epsilon,
            "dropout": dropout,
            "bayesian": bayesian,
            "seed": seed,
        }
        chosen = FORMS[form]
        if variance == "auto":
            variance = chosen["variance"]
        if differentiate_statistics == "auto":
            differentiate_statistics = chosen["differentiate_statistics"]
        self.precision = precision
        self.trainable_strength = trainable_strength
        self.initial_log_process_noise = initial_log_process_noise
        self.trainable_process_noise = trainable_process_noise
        self.bayesian = bayesian
        self.attention = HSTUAttention(
            num_heads,
            max_length,
            head_dim=head_dim,
            num_time_buckets=num_time_buckets,
            causal=causal,
            variance=variance,
            differentiate_statistics=bool(differentiate_statistics),
            precision=precision,
            carry_units=carry_units,
            activation=activation,
            epsilon=epsilon,
            dropout=dropout,
            kernel_initializer=kernel_initializer,
            seed=seed,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.residual = KalmanResidual(
            strength, dtype=self.dtype_policy, name="residual"
        )

    def build(
        self,
        state_shape: tuple[int | None, ...],
        log_precision_shape: tuple[int | None, ...] | None = None,
        timestamps_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self.attention.build(state_shape, timestamps_shape)
        self.log_process_noise = None
        if self.bayesian:
            self._build_filter(
                known_width(state_shape), log_precision_shape is not None
            )
        self.built = True

    def _build_filter(self, width: int, precision_is_read: bool) -> None:
        self.strength = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(self.residual.strength),
            trainable=self.trainable_strength,
            constraint="non_neg",
            dtype=self.statistics_dtype,
            autocast=False,
            name="strength",
        )
        if self.initial_log_process_noise is None:
            return
        self.log_process_noise = self.add_weight(
            shape=(1 if self.precision == "token" else width,),
            initializer=keras.initializers.Constant(
                self.initial_log_process_noise
            ),
            trainable=self.trainable_process_noise and precision_is_read,
            dtype=self.statistics_dtype,
            autocast=False,
            name="log_process_noise",
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
        training: bool = False,
        mask: Tensor | None = None,
        state_mask: Tensor | None = None,
    ) -> Any:
        state = self.cast_state(state)
        options = {
            "timestamps": timestamps,
            "padding_mask": first_mask(padding_mask, mask, state_mask),
            "attention_mask": attention_mask,
            "position": position,
            "cache": cache,
            "cache_index": cache_index,
            "training": training,
        }
        if not self.bayesian:
            innovation = self.attention(state, **options)
            if cache is None:
                return state + innovation
            innovation, cache = innovation
            return state + innovation, cache

        given = log_precision is not None
        if log_precision is None:
            log_precision = unit_snr_log_precision(state)
        log_precision = self.cast_statistic(log_precision)
        innovation, observed, *updated = self.attention(
            state, log_precision, strength=self.strength, **options
        )
        reported = {"observation_log_precision": observed}
        state, log_precision = self.residual(
            state, log_precision, innovation, observed, strength=self.strength
        )
        if not given:
            report(self, **reported)
            return (state, *updated) if updated else state
        if self.precision == "channel":
            log_precision = ops.broadcast_to(log_precision, ops.shape(state))
        log_precision = predict_log_precision(
            log_precision, None, self.log_process_noise
        )
        reported["log_precision"] = log_precision
        if self.log_process_noise is not None:
            reported["log_process_noise"] = self.log_process_noise
        report(self, **reported)
        return (state, log_precision, *updated)

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        """An empty cache of keys, values, their places and precisions.

        Args:
            batch_size: Number of sequences.
            length: Number of positions to hold, `S`.

        Returns:
            `"key"` and `"value"`, `(B, S, H, C)` in the compute dtype;
            `"position"`, `(B, S)` int32, and, of a layer built with
            timestamps, `"timestamps"`, `(B, S)` int32. Of a Bayesian layer
            also `"log_precision"`, `(B, S)`, and where units are carried
            `"value_log_precision"`, `(B, S, H)`, float32.
        """
        return self.attention.make_cache(batch_size, length, self.bayesian)

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
                self.attention.activation
            ),
            "kernel_initializer": keras.initializers.serialize(
                self.attention.kernel_initializer
            ),
        }
