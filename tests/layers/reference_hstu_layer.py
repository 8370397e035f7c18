"""The whole of `BFTHSTULayer` in float64 NumPy, from the brute-force reference.

It reads the weights and the configuration of a layer and uses nothing else of
the library. Precisions are plain numbers here, not logarithms.
"""

import math
from typing import Any

import numpy as np

from tests.layers.layer_checks import numpy
from tests.layers.reference_layer import ACTIVATIONS
from tests.layers.reference_layer import normalize
from tests.reference import bft_reference as reference


def relative_bias(
    layer: Any, position: np.ndarray, timestamps: np.ndarray | None
) -> np.ndarray:
    """Bias of each pair, `(B, H, T, T)`, from the tables of the layer."""
    tables = layer.attention.relative_bias
    batch, length = position.shape
    out = np.zeros((batch, tables.num_heads, length, length))
    first = 0 if tables.causal else tables.max_length - 1
    for b, t, s in np.ndindex(batch, length, length):
        distance = int(position[b, t] - position[b, s])
        row = min(max(distance, -first), tables.max_length - 1) + first
        out[b, :, t, s] = numpy(tables.position_table)[row]
        if timestamps is not None and tables.num_time_buckets:
            interval = abs(int(timestamps[b, t]) - int(timestamps[b, s]))
            bucket = math.floor(math.log(max(1, interval)) / 0.301)
            bucket = min(bucket, tables.num_time_buckets)
            out[b, :, t, s] += numpy(tables.time_table)[bucket]
    return out


def hstu_layer(
    layer: Any,
    state: np.ndarray,
    log_precision: np.ndarray,
    visible: np.ndarray,
    padding: np.ndarray,
    timestamps: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """State and log-precision after a whole layer.

    A query that sees no key keeps its state and, but for the process noise,
    its precision.
    """
    attention = layer.attention
    state = state.astype("float64")
    precision = np.exp(log_precision.astype("float64"))
    if layer.precision == "channel":
        precision = np.broadcast_to(precision, state.shape)
    strength = float(numpy(layer.strength))
    heads, length = attention.num_heads, attention.max_length
    activation = ACTIVATIONS[attention.activation.__name__]

    normalized, spread, _ = normalize(attention.norm, state)
    kernel = numpy(attention.input_dense.kernel)
    kernels = [
        part.reshape(state.shape[-1], heads, -1)
        for part in np.split(kernel, 4, axis=-1)
    ]
    parts = [np.einsum("btd,dhc->bthc", normalized, k) for k in kernels]
    gate, value, query, key = (activation(part) for part in parts)
    logits = np.einsum("bthc,bshc->bhts", query, key)
    logits = logits + relative_bias(layer, np.cumsum(padding, 1), timestamps)
    weights = ACTIVATIONS["silu"](logits) / length

    mean = precision.mean(-1, keepdims=True)
    value_precision = np.repeat(mean, heads, axis=-1)
    if attention.carry_units:
        derivative = reference.diagonal_jacobian(activation, parts[1])
        for b, s in np.ndindex(state.shape[:2]):
            # At one key the derivative is a part of the value kernel.
            value_precision[b, s] = reference.value_precision(
                precision[b, s][None, None],
                spread[b, s][None, None],
                numpy(attention.norm.gamma),
                kernels[1] * derivative[b, s],
            )
    seen = reference.sandwich_observation(
        weights, value, mean**strength, visible, value_precision
    )
    estimate, variance = seen["estimate"], seen["variance"]
    if attention.variance == "head":
        variance = np.broadcast_to(
            variance.mean(-1, keepdims=True), variance.shape
        )
    centered = estimate - estimate.mean((-2, -1), keepdims=True)
    inner_spread = np.sqrt(
        (centered**2).mean((-2, -1), keepdims=True) + attention.epsilon
    )
    gated = centered / inner_spread * gate
    variance = variance * (gate / inner_spread) ** 2
    output = numpy(attention.output_dense.kernel)
    innovation = gated.reshape(*gated.shape[:2], -1) @ output
    innovation = innovation + numpy(attention.output_dense.bias)

    sees = visible.any(-1)[..., None]
    observed = reference.project_precision(
        np.where(sees[..., None], 1.0 / np.maximum(variance, 1e-300), 1.0),
        output.reshape(heads, -1, state.shape[-1]),
    )
    if layer.precision == "token":
        observed = 1.0 / (1.0 / observed).mean(-1, keepdims=True)
    # As good as zero, and at strength zero no zero over zero.
    observed = np.where(sees, observed, 1e-200)
    state, precision, _ = reference.kalman_update(
        state, precision, innovation, observed, strength
    )
    noise = 0.0
    if layer.log_process_noise is not None:
        noise = np.exp(numpy(layer.log_process_noise))
    precision = reference.predict_precision(precision, 0.0, noise)
    return state, np.log(precision)
