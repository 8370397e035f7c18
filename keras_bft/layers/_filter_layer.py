"""What the filter layers share: dtypes, masks and argument checks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bft.layers._rematerialization import RematerializedLayer
from keras_bft.ops._casting import cast
from keras_bft.typing import Tensor

PRECISIONS = ("channel", "token")


class FilterLayer(RematerializedLayer):
    """Base of the layers that carry a log-precision beside a state.

    Keras would cast a log-precision to float16 with the other inputs, so
    casting is off and each layer casts its state itself.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = args[0] if args else kwargs.get("state")
        if isinstance(state, (list, tuple)):
            raise ValueError(
                "State and log-precision are two arguments: "
                "`layer(state, log_precision)`. "
                f"Received: state={type(state).__name__} of length "
                f"{len(state)}"
            )
        return super().__call__(*args, **kwargs)

    def cast_state(self, state: Tensor) -> Tensor:
        """Casts a state to the dtype that the layer computes in."""
        return cast(state, self.compute_dtype)

    @property
    def statistics_dtype(self) -> str:
        """Dtype of precisions and statistics: float32 in all but float64."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def cast_statistic(self, x: Tensor) -> Tensor:
        """Casts a precision or statistic to the dtype that they have."""
        return cast(x, self.statistics_dtype)

    def carried_spec(
        self, state: keras.KerasTensor, log_precision: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Spec of the log-precision that is returned beside the state.

        Of the width of the state where `self.precision` is `"channel"`, else
        of that which came in.
        """
        carrier = state if self.precision == "channel" else log_precision
        return keras.KerasTensor(
            (*state.shape[:-1], carrier.shape[-1]), dtype=self.statistics_dtype
        )

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None = None
    ) -> list[Tensor] | None:
        """Gives the state's mask to the state and to its log-precision."""
        if previous_mask is None:
            return None
        return [previous_mask, previous_mask]


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises a `ValueError` unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {tuple(choices)}. "
            f"Received: {name}={value!r}"
        )


def check_positive(name: str, value: Any) -> None:
    """Raises a `ValueError` unless `value` is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}"
        )


def known_width(shape: tuple[int | None, ...]) -> int:
    """Length of the last axis of a shape.

    Raises:
        ValueError: If it is not known.
    """
    width = shape[-1]
    if width is None:
        raise ValueError(
            "The last axis of the state must be known to create weights. "
            f"Received: shape={shape}"
        )
    return width


def head_width(
    num_heads: int, head_dim: int | None, state_shape: tuple[int | None, ...]
) -> int:
    """Channels of a head, `D // num_heads` unless `head_dim` says it.

    Raises:
        ValueError: If the width of the state is unknown or does not divide.
    """
    width = known_width(state_shape)
    if head_dim is None and width % num_heads:
        raise ValueError(
            "Without `head_dim`, `num_heads` must divide the width of the "
            f"state. Received: num_heads={num_heads}, "
            f"state_shape={state_shape}"
        )
    return head_dim or width // num_heads


def check_rate(name: str, value: Any) -> None:
    """Raises a `ValueError` unless `value` is a dropout rate."""
    if not 0 <= value < 1:
        raise ValueError(
            f"`{name}` must be at least 0 and below 1. "
            f"Received: {name}={value!r}"
        )


def copy_initializer(initializer: Any) -> Any:
    """A new initializer with the same configuration.

    One seeded initializer used twice gives two weights the same numbers.
    """
    return keras.initializers.get(keras.initializers.serialize(initializer))


def make_dense(
    layer: Any,
    name: str,
    units: int,
    input_shape: tuple[int | None, ...],
    kernel_initializer: Any = None,
) -> keras.layers.Dense:
    """A built projection of a layer, as its arguments say.

    Its kernel has an initializer of its own, if that is given.
    """
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        # Keras can't save a quantized layer again that was given a map.
        policy = policy[f"{layer.path}/{name}"]
    dense = keras.layers.Dense(
        units,
        use_bias=layer.use_bias,
        kernel_initializer=copy_initializer(
            layer.kernel_initializer
            if kernel_initializer is None
            else kernel_initializer
        ),
        dtype=policy,
        name=name,
    )
    dense.build(input_shape)
    return dense


def apply_dense(dense: keras.layers.Dense, x: Tensor) -> Tensor:
    """`dense(x)` without what Keras does around the call of a layer.

    Where no graph is compiled, that takes longer than the product of a
    decoder's one token.

    Args:
        dense: A projection of a built layer, without activation.
        x: `(B, T, D)` in the dtype that the projection computes in.

    Returns:
        `(B, T, units)`.
    """
    if dense.quantization_mode is not None or dense.lora_enabled:
        return dense(x)
    kernel, bias, dtype = dense.kernel, dense.bias, dense.compute_dtype
    if dense.variable_dtype != dtype:
        kernel = ops.cast(kernel, dtype)
        bias = None if bias is None else ops.cast(bias, dtype)
    # Keras on torch gives float32 for a product in float64.
    x = cast(ops.matmul(x, kernel), dtype)
    return x if bias is None else x + bias


def apply_dropout(dropout: Any, x: Tensor, training: bool) -> Tensor:
    """`dropout(x)`, of which nothing is called where nothing is dropped.

    Args:
        dropout: A dropout layer with a `rate`.
        x: What it drops from.
        training: Whether to drop.

    Returns:
        A tensor of the shape of `x`.
    """
    if not training or dropout.rate == 0:
        return x
    return dropout(x, training=True)


def dense_kernel(dense: keras.layers.Dense) -> Tensor:
    """The kernel that a projection multiplies by, LoRA and int8 included.

    Raises:
        NotImplementedError: If the projection is quantized in another way.
    """
    mode = dense.quantization_mode
    if mode is None:
        return dense.kernel
    if mode != "int8":
        raise NotImplementedError(
            "The filter reads kernels that are plain or quantized to int8. "
            f"Received: {dense.path} quantized to {mode!r}"
        )
    kernel = ops.cast(dense._kernel, "float32") / ops.cast(
        dense.kernel_scale, "float32"
    )
    if dense.lora_enabled:
        scale = dense.lora_alpha / dense.lora_rank
        low_rank = ops.matmul(dense.lora_kernel_a, dense.lora_kernel_b)
        kernel = kernel + scale * ops.cast(low_rank, "float32")
    return kernel
