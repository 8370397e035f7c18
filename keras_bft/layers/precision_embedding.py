"""Prior precision of each id."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import check_positive
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class PrecisionEmbedding(keras.layers.Layer):
    """Learned log-precision of each id: the filter's layer-zero prior.

    One number an id, `log tau`, kept and returned in float32. The paper's
    prior per item. For a signal-to-noise ratio of one, start it at minus the
    log of the variance of the embeddings that it stands beside.

    Args:
        input_dim: Size of the vocabulary.
        initial_log_precision: What every id starts from. Defaults to `0.0`,
            a variance of one.
        mask_zero: Whether id 0 is padding, which the output's Keras mask then
            says. Defaults to `False`.
        embeddings_regularizer: Optional regularizer of the table.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        ids: Integer ids of shape `(B, T)`, below `input_dim`.

    Returns:
        Log-precision of shape `(B, T, 1)`, float32.

    Raises:
        ValueError: If `input_dim` is not a positive integer.

    Example:

    >>> prior = keras_bft.layers.PrecisionEmbedding(10, -1.0)
    >>> keras.ops.convert_to_numpy(prior(np.array([[1, 2]]))).tolist()
    [[[-1.0], [-1.0]]]
    """

    def __init__(
        self,
        input_dim: int,
        initial_log_precision: float = 0.0,
        mask_zero: bool = False,
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_positive("input_dim", input_dim)
        self.input_dim = input_dim
        self.initial_log_precision = initial_log_precision
        self.mask_zero = mask_zero
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )
        self.supports_masking = mask_zero

    def build(self, ids_shape: tuple[int | None, ...]) -> None:
        self.embeddings = self.add_weight(
            shape=(self.input_dim, 1),
            initializer=keras.initializers.Constant(self.initial_log_precision),
            regularizer=self.embeddings_regularizer,
            dtype="float32",
            autocast=False,
            name="log_precision",
        )
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        return ops.take(self.embeddings, ops.cast(ids, "int32"), axis=0)

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None = None
    ) -> Tensor | None:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def compute_output_spec(self, ids: keras.KerasTensor) -> keras.KerasTensor:
        return keras.KerasTensor((*ids.shape, 1), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "initial_log_precision": self.initial_log_precision,
            "mask_zero": self.mask_zero,
            "embeddings_regularizer": keras.regularizers.serialize(
                self.embeddings_regularizer
            ),
        }
