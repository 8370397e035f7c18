"""Prior precision computed from the embeddings."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import FilterLayer
from keras_bft.layers._filter_layer import check_positive
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class PrecisionMLP(FilterLayer):
    """Log-precision from a two-layer network on the embeddings.

    The paper's prior for vocabularies too large, or too well trained, for a
    number per id. The last kernel starts at zero, so every token starts at
    `initial_log_precision`. It stays as it is when a model is quantized: it is
    small, and eight bits are too few for a logarithm.

    Args:
        hidden_dim: Width of the hidden layer. Defaults to `16`.
        initial_log_precision: Where every token starts: minus the log of the
            embeddings' variance for a signal-to-noise ratio of one. Defaults
            to `0.0`.
        activation: Activation of the hidden layer. Defaults to `"gelu"`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        embeddings: `(B, T, D)`.

    Returns:
        Log-precision of shape `(B, T, 1)`, float32.

    Raises:
        ValueError: If `hidden_dim` is not a positive integer.

    Example:

    >>> prior = keras_bft.layers.PrecisionMLP(8, initial_log_precision=2.0)
    >>> keras.ops.convert_to_numpy(prior(np.ones((1, 2, 4)))).tolist()
    [[[2.0], [2.0]]]
    """

    def __init__(
        self,
        hidden_dim: int = 16,
        initial_log_precision: float = 0.0,
        activation: Any = "gelu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive("hidden_dim", hidden_dim)
        self.hidden_dim = hidden_dim
        self.initial_log_precision = initial_log_precision
        self.activation = keras.activations.get(activation)

    def build(self, embeddings_shape: tuple[int | None, ...]) -> None:
        self.hidden_dense = _PlainDense(
            self.hidden_dim,
            activation=self.activation,
            dtype=self.dtype_policy,
            name="hidden",
        )
        self.hidden_dense.build(embeddings_shape)
        self.output_dense = _PlainDense(
            1,
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(
                self.initial_log_precision
            ),
            dtype="float32",
            name="log_precision",
        )
        self.output_dense.build((*embeddings_shape[:-1], self.hidden_dim))
        self.built = True

    def call(self, embeddings: Tensor) -> Tensor:
        hidden = self.hidden_dense(self.cast_state(embeddings))
        return self.output_dense(ops.cast(hidden, "float32"))

    def compute_output_spec(
        self, embeddings: keras.KerasTensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor((*embeddings.shape[:-1], 1), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "initial_log_precision": self.initial_log_precision,
            "activation": keras.activations.serialize(self.activation),
        }


class _PlainDense(keras.layers.Dense):
    """A projection that `Model.quantize` leaves alone."""

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""
