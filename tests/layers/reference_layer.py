"""The whole of `BFTLayer` in float64 NumPy, from the brute-force reference.

It reads the weights and the configuration of a layer and uses nothing else of
the library. Precisions are plain numbers here, not logarithms.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers.layer_checks import numpy
from tests.reference import bft_reference as reference

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


def weights(x: Any) -> tuple[np.ndarray, np.ndarray | float]:
    """Kernel and bias of a dense layer."""
    return numpy(x.kernel), 0.0 if x.bias is None else numpy(x.bias)


def normalize(
    norm: Any, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalised state, spread and diagonal Jacobian by differences."""

    def centered(x: np.ndarray) -> np.ndarray:
        return x - x.mean(-1, keepdims=True) if norm.kind == "layer" else x

    def spread(x: np.ndarray) -> np.ndarray:
        return np.sqrt((centered(x) ** 2).mean(-1) + norm.epsilon)

    def function(x: np.ndarray) -> np.ndarray:
        beta = 0.0 if norm.beta is None else numpy(norm.beta)
        return numpy(norm.gamma) * centered(x) / spread(x)[..., None] + beta

    jacobian = reference.diagonal_jacobian(function, state)
    return function(state), spread(state), jacobian


def observe(
    attention: Any,
    state: np.ndarray,
    precision: np.ndarray,
    visible: np.ndarray,
    strength: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Innovation and precision of the observation, `(B, T, D or 1)`."""
    normalized, spread, gamma = state, np.ones(state.shape[:2]), 1.0
    if attention.normalization is not None:
        normalized, spread, _ = normalize(attention.norm, state)
        gamma = numpy(attention.norm.gamma)
    num_heads = attention.num_heads
    key_heads = attention.num_key_value_heads or num_heads
    groups = num_heads // key_heads

    def heads(dense: Any, number: int) -> np.ndarray:
        kernel, bias = weights(dense)
        x = normalized @ kernel + bias
        return x.reshape(*x.shape[:2], number, -1)

    query = heads(attention.query_dense, num_heads)
    key = heads(attention.key_dense, key_heads).repeat(groups, axis=2)
    value = heads(attention.value_dense, key_heads).repeat(groups, axis=2)
    head_dim = query.shape[-1]
    value_kernel = weights(attention.value_dense)[0].reshape(
        state.shape[-1], key_heads, head_dim
    )
    if attention.carry_units:
        value_precision = reference.value_precision(
            precision, spread, gamma * np.ones(state.shape[-1]), value_kernel
        )
    else:
        value_precision = precision.mean(-1)[..., None].repeat(key_heads, -1)
    value_precision = value_precision.repeat(groups, axis=-1)

    # One head at a time: each may read the precision of the keys its own way.
    seen = []
    for head in range(num_heads):
        read = precision
        if attention.key_precision == "per_head":
            norms = (value_kernel[:, head // groups] ** 2).sum(-1)
            share = norms / norms.sum()
            read = 1.0 / (share / precision).sum(-1, keepdims=True)
        one = slice(head, head + 1)
        seen.append(
            reference.kriging_observation(
                query[:, :, one],
                key[:, :, one],
                value[:, :, one],
                read,
                visible,
                value_precision[..., one],
                strength=strength,
            )
        )
    estimate, residual, size, prior = (
        np.concatenate([head[name] for head in seen], axis=2)
        for name in (
            "estimate",
            "residual_variance",
            "effective_sample_size",
            "prior_precision",
        )
    )
    if attention.variance == "head":
        residual = residual.mean(-1, keepdims=True).repeat(head_dim, -1)
    observed = reference.observation_precision(
        residual,
        size[..., None],
        prior[..., None],
        attention.prior_dof,
    )
    kernel, bias = weights(attention.output_dense)
    observed = reference.project_precision(
        observed, kernel.reshape(num_heads, head_dim, -1)
    )
    if attention.precision == "token":
        observed = 1.0 / (1.0 / observed).mean(-1, keepdims=True)
    flat = estimate.reshape(*estimate.shape[:2], -1)
    return flat @ kernel + bias, observed


def predict(
    feed_forward: Any, state: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """State and precision after the feed-forward network."""
    normalized, spread, norm_jacobian = state, np.ones(state.shape[:2]), 1.0
    gamma = np.ones(state.shape[-1])
    if feed_forward.normalization is not None:
        norm = feed_forward.norm
        normalized, spread, norm_jacobian = normalize(norm, state)
        gamma = numpy(norm.gamma)
    activation: Callable = ACTIVATIONS[feed_forward.activation.__name__]

    def network(x: np.ndarray) -> np.ndarray:
        kernel, bias = weights(feed_forward.input_dense)
        hidden = activation(x @ kernel + bias)
        if feed_forward.gated:
            kernel, bias = weights(feed_forward.up_dense)
            hidden = hidden * (x @ kernel + bias)
        kernel, bias = weights(feed_forward.output_dense)
        return hidden @ kernel + bias

    jacobian = np.zeros_like(state)
    if feed_forward.jacobian is not None:
        jacobian = reference.diagonal_jacobian(network, normalized)
    if feed_forward.jacobian == "diagonal":
        jacobian = jacobian * norm_jacobian
    if feed_forward.jacobian == "mean":
        jacobian = (jacobian * gamma).mean(-1, keepdims=True)
        if feed_forward.normalization is not None:
            lost = 2.0 if norm.kind == "layer" else 1.0
            jacobian = jacobian * (1.0 - lost / state.shape[-1])
            jacobian = jacobian / spread[..., None]
    noise = 0.0
    if feed_forward.log_process_noise is not None:
        noise = np.exp(numpy(feed_forward.log_process_noise))
    if precision.shape[-1] == 1:
        jacobian = np.sqrt(((1.0 + jacobian) ** 2).mean(-1, keepdims=True)) - 1
    return state + network(normalized), reference.predict_precision(
        precision, jacobian, noise
    )


def bft_layer(
    layer: Any,
    state: np.ndarray,
    log_precision: np.ndarray,
    visible: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """State and log-precision after a whole layer."""
    state = state.astype("float64")
    precision = np.exp(log_precision.astype("float64"))
    if layer.precision == "channel":
        precision = np.broadcast_to(precision, state.shape)
    strength = float(numpy(layer.strength))

    def post_norm(
        index: int, state: np.ndarray, precision: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if layer.normalize_first:
            return state, precision
        norm = layer.post_norms[index]
        normalized, spread, _ = normalize(norm, state)
        if layer.carry_units:
            squared = numpy(norm.gamma) ** 2
            if precision.shape[-1] == 1:
                squared = squared.mean()
            precision = precision * spread[..., None] ** 2 / squared
        return normalized, precision

    innovation, observed = observe(
        layer.attention, state, precision, visible, strength
    )
    state, precision, _ = reference.kalman_update(
        state, precision, innovation, observed, strength
    )
    state, precision = post_norm(0, state, precision)
    state, precision = predict(layer.feed_forward, state, precision)
    state, precision = post_norm(1, state, precision)
    return state, np.log(precision)
