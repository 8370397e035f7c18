"""Attention bias by relative position and by the time in between."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers._filter_layer import check_positive
from keras_bft.typing import Tensor

# log(2), as the published code of HSTU has it: of base 10, used with ln.
_BUCKET_WIDTH = 0.301


def time_bucket(interval: Tensor, num_time_buckets: int) -> Tensor:
    """Bucket of a time interval, `min(floor(ln(max(1, |x|)) / 0.301), n)`.

    Args:
        interval: Differences of times, of any shape.
        num_time_buckets: Number `n` of the last bucket.

    Returns:
        Int32 of the shape of `interval`, from 0 to `num_time_buckets`.

    Example:

    >>> bucket = time_bucket(np.array([0, -1, 2, 60, 86400]), 30)
    >>> keras.ops.convert_to_numpy(bucket).tolist()
    [0, 0, 2, 13, 30]
    """
    interval = ops.abs(ops.cast(interval, "float32"))
    bucket = ops.floor(ops.log(ops.maximum(interval, 1.0)) / _BUCKET_WIDTH)
    return ops.cast(ops.minimum(bucket, float(num_time_buckets)), "int32")


@keras.saving.register_keras_serializable(package="keras_bft")
class RelativeBias(keras.layers.Layer):
    """Learned attention bias for relative positions and time intervals.

    The bias of HSTU (arXiv 2402.17152), with a table entry for each head: one
    table over the difference of the positions, and one over the buckets of
    the time between the two items, see `time_bucket`.

    Args:
        num_heads: Number of heads.
        max_length: Largest number of items. Items further apart than that
            share the last entry.
        num_time_buckets: Number of the last time bucket; zero for no table of
            times. Defaults to `128`.
        causal: Whether keys are never later than their query, which halves
            the table of positions. Defaults to `True`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        position: `(B, T)` or `(1, T)` integers.
        timestamps: `(B, T)` times, in seconds. Integers keep every second;
            JAX holds them in 32 bits, and holds floating-point times in
            float32, in which a time since 1970 is right to two minutes only.
        key_position: `(B, S)` positions of the keys. Defaults to `position`:
            the queries are the keys.
        key_timestamps: `(B, S)` times of the keys. Defaults to `timestamps`.

    Returns:
        Bias `(B, H, T, S)` or `(1, H, T, S)`, queries first, in the dtype of
        the layer's variables.

    Raises:
        ValueError: If an argument is outside its domain, or a layer that was
            built without timestamps is given some.

    Example:

    >>> bias = keras_bft.layers.relative_bias.RelativeBias(2, max_length=4)
    >>> tuple(bias(np.arange(3)[None]).shape)
    (1, 2, 3, 3)
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        num_time_buckets: int = 128,
        causal: bool = True,
        **kwargs: Any,
    ) -> None:
        # Keras would cast times to float32 before they are subtracted.
        super().__init__(autocast=False, **kwargs)
        check_positive("num_heads", num_heads)
        check_positive("max_length", max_length)
        if num_time_buckets != 0:
            check_positive("num_time_buckets", num_time_buckets)
        self.num_heads = num_heads
        self.max_length = max_length
        self.num_time_buckets = num_time_buckets
        self.causal = causal

    def build(
        self,
        position_shape: tuple[int | None, ...],
        timestamps_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        length = self.max_length if self.causal else 2 * self.max_length - 1
        self.position_table = self._table("positions", length)
        self.time_table = None
        if self.num_time_buckets and timestamps_shape is not None:
            self.time_table = self._table("times", self.num_time_buckets + 1)
        self.built = True

    def _table(self, name: str, length: int) -> keras.Variable:
        return self.add_weight(
            shape=(length, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name=name,
        )

    def call(
        self,
        position: Tensor,
        timestamps: Tensor | None = None,
        key_position: Tensor | None = None,
        key_timestamps: Tensor | None = None,
    ) -> Tensor:
        if key_position is None:
            key_position = position
        # `ops.subtract` lets 32 and 64 bits meet on TensorFlow too.
        distance = ops.subtract(position[:, :, None], key_position[:, None, :])
        offset = 0 if self.causal else self.max_length - 1
        index = ops.clip(distance + offset, 0, self.max_length - 1 + offset)
        bias = ops.take(self.position_table, index, axis=0)
        if timestamps is not None and self.num_time_buckets:
            if self.time_table is None:
                raise ValueError(
                    "A layer that was built without timestamps has no table "
                    "for them: build it by a call with timestamps. "
                    f"Received: timestamps of shape {timestamps.shape}"
                )
            if key_timestamps is None:
                key_timestamps = timestamps
            interval = ops.subtract(
                timestamps[:, :, None], key_timestamps[:, None, :]
            )
            bucket = time_bucket(interval, self.num_time_buckets)
            bias = bias + ops.take(self.time_table, bucket, axis=0)
        return ops.transpose(bias, (0, 3, 1, 2))

    def compute_output_spec(
        self,
        position: keras.KerasTensor,
        timestamps: keras.KerasTensor | None = None,
        key_position: keras.KerasTensor | None = None,
        key_timestamps: keras.KerasTensor | None = None,
    ) -> keras.KerasTensor:
        batch, length = (position if timestamps is None else timestamps).shape
        num_keys = length if key_position is None else key_position.shape[1]
        return keras.KerasTensor(
            (batch, self.num_heads, length, num_keys),
            dtype=self.variable_dtype,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "max_length": self.max_length,
            "num_time_buckets": self.num_time_buckets,
            "causal": self.causal,
        }
