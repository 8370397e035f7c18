"""Diagonal Jacobians of norms and feed-forward networks, in closed form.

All are derived for this library. The paper propagates precision through the
diagonal Jacobian; how it computes it is not public.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_bft.ops.activation_derivative import activation_derivative
from keras_bft.ops.precision import float32
from keras_bft.typing import Tensor

Activation = str | Callable[[Tensor], Tensor]


def feed_forward_jacobian(
    pre_activation: Tensor,
    kernel_in: Tensor,
    kernel_out: Tensor,
    activation: Activation,
) -> Tensor:
    """Diagonal Jacobian of `f(x) = act(x W1 + b1) W2 + b2`.

    `J_i = sum_k W2[k, i] act'(a_k) W1[i, k]`: one matrix product.

    Args:
        pre_activation: `a = x W1 + b1`, `(..., F)`.
        kernel_in: `W1`, `(D, F)`.
        kernel_out: `W2`, `(F, D)`.
        activation: Name or callable of an elementwise activation.

    Returns:
        `(..., D)`, float32.

    Example:

    >>> jacobian = feed_forward_jacobian(
    ...     np.array([[[2.0, -1.0, 3.0, -4.0]]]), np.ones((3, 4)),
    ...     np.ones((4, 3)), "relu")
    >>> keras.ops.convert_to_numpy(jacobian).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    slope = activation_derivative(activation)(float32(pre_activation))
    return ops.matmul(slope, jacobian_kernel(kernel_in, kernel_out))


def gated_feed_forward_jacobian(
    gate: Tensor,
    up: Tensor,
    kernel_gate: Tensor,
    kernel_up: Tensor,
    kernel_down: Tensor,
    activation: Activation,
) -> Tensor:
    """Diagonal Jacobian of `f(x) = (act(x Wg) * (x Wu)) Wd`.

    Args:
        gate: Pre-activation of the gate, `(..., F)`.
        up: What the gate multiplies, `(..., F)`.
        kernel_gate: `Wg`, `(D, F)`.
        kernel_up: `Wu`, `(D, F)`.
        kernel_down: `Wd`, `(F, D)`.
        activation: Name or callable of an elementwise activation.

    Returns:
        `(..., D)`, float32.
    """
    gate_slope, up_slope = gated_slopes(gate, up, activation)
    return ops.matmul(
        gate_slope, jacobian_kernel(kernel_gate, kernel_down)
    ) + ops.matmul(up_slope, jacobian_kernel(kernel_up, kernel_down))


def mean_feed_forward_jacobian(
    pre_activation: Tensor,
    kernel_in: Tensor,
    kernel_out: Tensor,
    activation: Activation,
    gamma: Tensor | None = None,
) -> Tensor:
    """Mean over the channels of `feed_forward_jacobian`, times `gamma`.

    The light form's Jacobian: it needs a vector of F entries instead of a
    kernel of F x D.

    Args:
        pre_activation: `(..., F)`.
        kernel_in: `(D, F)`.
        kernel_out: `(F, D)`.
        activation: Name or callable of an elementwise activation.
        gamma: Optional factor of each channel's Jacobian, `(D,)`.

    Returns:
        `(..., 1)`, float32.
    """
    slope = activation_derivative(activation)(float32(pre_activation))
    kernel = mean_jacobian_kernel(kernel_in, kernel_out, gamma)
    return ops.matmul(slope, kernel)


def mean_gated_feed_forward_jacobian(
    gate: Tensor,
    up: Tensor,
    kernel_gate: Tensor,
    kernel_up: Tensor,
    kernel_down: Tensor,
    activation: Activation,
    gamma: Tensor | None = None,
) -> Tensor:
    """Mean over the channels of `gated_feed_forward_jacobian`, times `gamma`.

    Args:
        gate: `(..., F)`.
        up: `(..., F)`.
        kernel_gate: `(D, F)`.
        kernel_up: `(D, F)`.
        kernel_down: `(F, D)`.
        activation: Name or callable of an elementwise activation.
        gamma: Optional factor of each channel's Jacobian, `(D,)`.

    Returns:
        `(..., 1)`, float32.
    """
    gate_slope, up_slope = gated_slopes(gate, up, activation)
    return ops.matmul(
        gate_slope, mean_jacobian_kernel(kernel_gate, kernel_down, gamma)
    ) + ops.matmul(
        up_slope, mean_jacobian_kernel(kernel_up, kernel_down, gamma)
    )


def layer_norm_jacobian(
    x: Tensor, gamma: Tensor | None, epsilon: float
) -> Tensor:
    """Diagonal Jacobian of layer normalisation over the last axis.

    `gamma_i / s (1 - 1/D - xhat_i^2 / D)` with `s = sqrt(var(x) + epsilon)`
    and `xhat = (x - mean(x)) / s`. The off-diagonal remainder is O(1/D).

    Args:
        x: `(..., D)`.
        gamma: Scale, `(D,)`, or `None` for ones.
        epsilon: Added to the variance.

    Returns:
        `(..., D)`, float32.
    """
    x = float32(x)
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    return _norm_jacobian(centered, gamma, epsilon, 1.0 / x.shape[-1])


def rms_norm_jacobian(
    x: Tensor, gamma: Tensor | None, epsilon: float
) -> Tensor:
    """Diagonal Jacobian of RMS normalisation over the last axis.

    `gamma_i / s (1 - xhat_i^2 / D)` with `s = sqrt(mean(x^2) + epsilon)` and
    `xhat = x / s`. The off-diagonal remainder is O(1/D).

    Args:
        x: `(..., D)`.
        gamma: Scale, `(D,)`, or `None` for ones.
        epsilon: Added to the mean square.

    Returns:
        `(..., D)`, float32.
    """
    return _norm_jacobian(float32(x), gamma, epsilon, 0.0)


def _norm_jacobian(
    x: Tensor, gamma: Tensor | None, epsilon: float, lost: float
) -> Tensor:
    channels = x.shape[-1]
    mean_square = ops.mean(ops.square(x), axis=-1, keepdims=True) + epsilon
    share = ops.square(x) / (mean_square * channels)
    jacobian = (1.0 - lost - share) * ops.rsqrt(mean_square)
    return jacobian if gamma is None else float32(gamma) * jacobian


def jacobian_kernel(kernel_in: Tensor, kernel_out: Tensor) -> Tensor:
    """Weights' part of a diagonal Jacobian: `W1[i, k] W2[k, i]` at `[k, i]`.

    Args:
        kernel_in: `(D, F)`.
        kernel_out: `(F, D)`.

    Returns:
        `(F, D)`, float32.
    """
    return ops.transpose(float32(kernel_in)) * float32(kernel_out)


def mean_jacobian_kernel(
    kernel_in: Tensor, kernel_out: Tensor, gamma: Tensor | None = None
) -> Tensor:
    """Mean over the channels of `jacobian_kernel`, times `gamma`.

    Args:
        kernel_in: `(D, F)`.
        kernel_out: `(F, D)`.
        gamma: Optional factor of each channel, `(D,)`.

    Returns:
        `(F, 1)`, float32.
    """
    kernel_out = ops.transpose(float32(kernel_out))
    if gamma is not None:
        kernel_out = kernel_out * float32(gamma)[:, None]
    # Summed over the rows, in the order in which memory holds them.
    mean = ops.mean(float32(kernel_in) * kernel_out, axis=0)
    return mean[:, None]


def gated_slopes(
    gate: Tensor, up: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    """Derivatives of `act(gate) * up` by `gate` and by `up`.

    Args:
        gate: `(..., F)`.
        up: `(..., F)`.
        activation: Name or callable of an elementwise activation.

    Returns:
        Two tensors `(..., F)`, float32.
    """
    gate, up = float32(gate), float32(up)
    slope = activation_derivative(activation)(gate)
    return slope * up, keras.activations.get(activation)(gate)
