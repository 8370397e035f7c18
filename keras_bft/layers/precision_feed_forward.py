"""Predict: the feed-forward network as dynamics of state and precision."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import PRECISIONS
from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import apply_dense
from keras_bft.layers._filter_layer import apply_dropout
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import check_rate
from keras_bft.layers._filter_layer import dense_kernel
from keras_bft.layers._filter_layer import known_width
from keras_bft.layers._filter_layer import make_dense
from keras_bft.layers._seeds import part_seed
from keras_bft.layers._trace import report
from keras_bft.layers.state_normalization import NORMALIZATIONS
from keras_bft.layers.state_normalization import StateNormalization
from keras_bft.ops import activation_derivative
from keras_bft.ops import gated_slopes
from keras_bft.ops import jacobian_kernel
from keras_bft.ops import mean_jacobian_kernel
from keras_bft.ops import predict_log_precision
from keras_bft.typing import Tensor

JACOBIANS = ("diagonal", "mean", None)


@keras.saving.register_keras_serializable(package="keras_bft")
class PrecisionFeedForward(FilterLayer):
    """Feed-forward network with its residual, for a state and its precision.

    `h + f(norm(h))`, and `l'' = -logaddexp(log((1 + J)^2) - l, q)`: the
    precision passes through the diagonal Jacobian of the network and loses
    the learned process noise `Q = exp(q)`. The diagonal leaves out the norm's
    off-diagonal remainder, which is O(1/D).

    Args:
        hidden_dim: Width of the hidden layer.
        activation: Elementwise activation. Defaults to `"gelu"`.
        gated: `True` for `(act(x Wg) * (x Wu)) Wd` (SwiGLU with `"silu"`),
            `False` for `act(x W1) W2`. Defaults to `False`.
        jacobian: `"diagonal"`, `"mean"` (its mean over the channels, which
            costs next to nothing) or `None` (zero). Defaults to `"mean"`.
        precision: `"channel"` learns a process noise per channel, `"token"`
            a single one. Defaults to `"channel"`.
        initial_log_process_noise: Where `q` starts, in log of the state's
            variance; `None` for no process noise. Defaults to `-2.0`, for a
            state of variance one.
        trainable_process_noise: Whether `q` is learned. Set it to `False`
            where nothing reads the log-precision that the layer returns, such
            as in the last layer of a model; a layer built for a state alone
            does so itself. Defaults to `True`.
        normalization: `"layer"` or `"rms"`: the norm applied to the state
            first (pre-norm). `None` applies none. Defaults to `"layer"`.
        epsilon: Epsilon of the norm. Defaults to `1e-6`.
        differentiate_statistics: Whether gradients flow through the Jacobian.
            Defaults to `False`.
        dropout: Dropout after the activation and on the output.
        use_bias: Whether the projections have biases. Defaults to `True`.
        kernel_initializer: Initializer of the projections.
        bayesian: `False` makes it the standard feed-forward block: the same
            weights and no filter. Defaults to `True`.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        state: `(B, T, D)`.
        log_precision: `(B, T, D)` or `(B, T, 1)`. Without it only the state
            is returned.
        padding_mask: Part of the call shape of all filter layers; positions
            do not meet in this one, so it changes nothing.
        training: Whether to use dropout.

    Returns:
        The predicted state and its log-precision (float32), or the state
        alone. The state's Keras mask passes to both.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> layer = keras_bft.layers.PrecisionFeedForward(16)
    >>> state, log_precision = layer(np.ones((2, 5, 8)), np.zeros((2, 5, 8)))
    >>> tuple(state.shape), tuple(log_precision.shape)
    ((2, 5, 8), (2, 5, 8))
    """

    def __init__(
        self,
        hidden_dim: int,
        activation: Any = "gelu",
        gated: bool = False,
        jacobian: str | None = "mean",
        precision: str = "channel",
        initial_log_process_noise: float | None = -2.0,
        trainable_process_noise: bool = True,
        normalization: str | None = "layer",
        epsilon: float = 1e-6,
        differentiate_statistics: bool = False,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bayesian: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive("hidden_dim", hidden_dim)
        check_choice("jacobian", jacobian, JACOBIANS)
        check_choice("precision", precision, PRECISIONS)
        check_choice("normalization", normalization, (*NORMALIZATIONS, None))
        check_rate("dropout", dropout)
        self.hidden_dim = hidden_dim
        self.activation = keras.activations.get(activation)
        self.gated = gated
        self.jacobian = jacobian
        self.precision = precision
        self.initial_log_process_noise = initial_log_process_noise
        self.trainable_process_noise = trainable_process_noise
        self.normalization = normalization
        self.epsilon = epsilon
        self.differentiate_statistics = differentiate_statistics
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bayesian = bayesian
        self.seed = seed
        self.hidden_dropout = keras.layers.Dropout(
            dropout, seed=seed, dtype=self.dtype_policy, name="hidden_dropout"
        )
        self.output_dropout = keras.layers.Dropout(
            dropout,
            seed=part_seed(seed, 1),
            dtype=self.dtype_policy,
            name="output_dropout",
        )

    def build(
        self,
        state_shape: tuple[int | None, ...],
        log_precision_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        width = known_width(state_shape)
        if self.normalization is not None:
            self.norm = StateNormalization(
                self.normalization,
                self.epsilon,
                dtype=self.dtype_policy,
                name="norm",
            )
            self.norm.build(state_shape)
        self.input_dense = make_dense(
            self, "input", self.hidden_dim, state_shape
        )
        self.up_dense = None
        if self.gated:
            self.up_dense = make_dense(self, "up", self.hidden_dim, state_shape)
        self.output_dense = make_dense(
            self, "output", width, (*state_shape[:-1], self.hidden_dim)
        )
        self.log_process_noise = None
        if self.bayesian and self.initial_log_process_noise is not None:
            self.log_process_noise = self.add_weight(
                shape=(1 if self.precision == "token" else width,),
                initializer=keras.initializers.Constant(
                    self.initial_log_process_noise
                ),
                trainable=(
                    self.trainable_process_noise
                    and log_precision_shape is not None
                ),
                dtype=self.statistics_dtype,
                autocast=False,
                name="log_process_noise",
            )
        self.built = True

    def call(
        self,
        state: Tensor,
        log_precision: Tensor | None = None,
        padding_mask: Tensor | None = None,
        weight_statistics: list[Tensor] | None = None,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        state = self.cast_state(state)
        normalized, spread = state, None
        if self.normalization is not None:
            normalized, spread = self.norm.call(state)
        pre_activation = apply_dense(self.input_dense, normalized)
        hidden = self.activation(pre_activation)
        up = None
        if self.up_dense is not None:
            up = apply_dense(self.up_dense, normalized)
            hidden = hidden * up
        hidden = apply_dropout(self.hidden_dropout, hidden, training)
        update = apply_dense(self.output_dense, hidden)
        update = apply_dropout(self.output_dropout, update, training)
        predicted = state + update
        if log_precision is None or not self.bayesian:
            return predicted
        log_precision = self.cast_statistic(log_precision)
        jacobian = None
        if self.jacobian is not None:
            if weight_statistics is None:
                weight_statistics = self.weight_statistics()
            jacobian = self._jacobian(
                state, spread, pre_activation, up, weight_statistics
            )
        if jacobian is not None and not self.differentiate_statistics:
            jacobian = ops.stop_gradient(jacobian)
        if self.precision == "channel":
            log_precision = ops.broadcast_to(log_precision, ops.shape(state))
        log_precision = predict_log_precision(
            log_precision, jacobian, self.log_process_noise
        )
        reported = {"update": update, "log_precision": log_precision}
        if self.log_process_noise is not None:
            reported["log_process_noise"] = self.log_process_noise
        report(self, **reported)
        return predicted, log_precision

    def weight_statistics(self) -> list[Tensor]:
        """The weights' part of the Jacobian, the same for every token.

        A decoder computes it once and passes it to the call of each token.
        """
        if self.jacobian is None or not self.bayesian:
            return []
        kernels = [dense_kernel(self.input_dense)]
        if self.up_dense is not None:
            kernels.append(dense_kernel(self.up_dense))
        down = dense_kernel(self.output_dense)
        if self.jacobian == "diagonal":
            return [jacobian_kernel(kernel, down) for kernel in kernels]
        gamma = None if self.normalization is None else self.norm.gamma
        return [mean_jacobian_kernel(kernel, down, gamma) for kernel in kernels]

    def _jacobian(
        self,
        state: Tensor,
        spread: Tensor | None,
        pre_activation: Tensor,
        up: Tensor | None,
        kernels: list[Tensor],
    ) -> Tensor:
        """Jacobian of the update, `(B, T, D)` or `(B, T, 1)`."""
        if up is None:
            derivative = activation_derivative(self.activation)
            slopes: tuple[Tensor, ...] = (
                derivative(self.cast_statistic(pre_activation)),
            )
        else:
            slopes = gated_slopes(pre_activation, up, self.activation)
        jacobian: Tensor = sum(
            ops.matmul(slope, kernel)
            for slope, kernel in zip(slopes, kernels, strict=True)
        )
        if spread is None:
            return jacobian
        if self.jacobian == "diagonal":
            return jacobian * self.norm.jacobian(state)
        return jacobian * self.norm.mean_factor / spread[..., None]

    def compute_output_spec(
        self,
        state: keras.KerasTensor,
        log_precision: keras.KerasTensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        predicted = keras.KerasTensor(state.shape, dtype=self.compute_dtype)
        if log_precision is None or not self.bayesian:
            return predicted
        return predicted, self.carried_spec(state, log_precision)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "activation": keras.activations.serialize(self.activation),
            "gated": self.gated,
            "jacobian": self.jacobian,
            "precision": self.precision,
            "initial_log_process_noise": self.initial_log_process_noise,
            "trainable_process_noise": self.trainable_process_noise,
            "normalization": self.normalization,
            "epsilon": self.epsilon,
            "differentiate_statistics": self.differentiate_statistics,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bayesian": self.bayesian,
            "seed": self.seed,
        }
