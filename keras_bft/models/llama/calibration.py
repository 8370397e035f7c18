"""Process noise and prior of a pretrained decoder, from one pass over text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from keras import ops

from keras_bft.layers._trace import listening
from keras_bft.models.llama._token_arrays import read_tokens
from keras_bft.models.llama._token_arrays import to_numpy

# Sequences of a pass. A pass is eager and keeps one update of every layer.
_BATCH = 4


def calibrate(backbone: Any, token_ids: Any, padding_mask: Any = None) -> None:
    """Sets a backbone's log process noise and prior log-precision.

    ```
    log Q_d = 1 + log var(f_d)      var over tokens, f = feed-forward update
    log tau = -log var(h0)          var over tokens and channels, h0 = embedding
    ```

    Process noise is what the dynamics are seen to add, and every token starts
    at a signal-to-noise ratio of one. The updates are the standard decoder's
    (strength 0), whatever the strength of the layers is. Derived for this
    library.

    Args:
        backbone: A Bayesian `BFTLlamaBackbone`.
        token_ids: `(B, T)`.
        padding_mask: `(B, T)`, or `None` for no padding.

    Raises:
        ValueError: If the backbone is not Bayesian, there are fewer than two
            tokens, or one is unknown.
    """
    if not backbone.bayesian:
        raise ValueError(
            "Only a Bayesian model has process noise to calibrate. "
            f"Received: bayesian={backbone.bayesian}"
        )
    token_ids, mask = read_tokens(
        token_ids, padding_mask, backbone.vocabulary_size
    )
    if np.count_nonzero(mask) < 2:
        raise ValueError(
            "`token_ids` must hold at least two tokens. Received: shape "
            f"{token_ids.shape}, {np.count_nonzero(mask)} of them not padding"
        )
    layers = backbone.transformer_layers
    moments = [_Moments() for _ in layers]
    start = _Moments()
    with _strength_zero(layers):
        for first in range(0, len(token_ids), _BATCH):
            rows = slice(first, first + _BATCH)
            real = mask[rows] > 0
            ids = ops.convert_to_tensor(token_ids[rows])
            embedded = backbone.token_embedding(ids)
            start.add(to_numpy(embedded)[real].reshape(-1, 1))
            with listening({"update"}) as records:
                backbone.encode(ids, ops.convert_to_tensor(mask[rows]))
            updates = {id(layer): heard["update"] for layer, heard in records}
            for moment, layer in zip(moments, layers, strict=True):
                moment.add(to_numpy(updates[id(layer.feed_forward)])[real])
    for moment, layer in zip(moments, layers, strict=True):
        variable = layer.feed_forward.log_process_noise
        noise = 1.0 + np.log(moment.variance() + 1e-30)
        if variable.shape[0] == 1:
            noise = 1.0 + np.log(moment.variance().mean(keepdims=True) + 1e-30)
        variable.assign(noise.astype("float32"))
    output = backbone.prior.output_dense
    output.kernel.assign(ops.zeros(output.kernel.shape))
    output.bias.assign(-np.log(start.variance() + 1e-30).astype("float32"))


class _Moments:
    """Running mean and variance of rows, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0
        self.squares: Any = 0.0

    def add(self, rows: np.ndarray) -> None:
        if len(rows) == 0:
            return
        rows = rows.astype("float64")
        count, mean = len(rows), rows.mean(0)
        total = self.count + count
        shift = mean - self.mean
        self.squares = (
            self.squares
            + np.square(rows - mean).sum(0)
            + np.square(shift) * self.count * count / total
        )
        self.mean = self.mean + shift * count / total
        self.count = total

    def variance(self) -> np.ndarray:
        return np.asarray(self.squares / self.count)


@contextmanager
def _strength_zero(layers: list[Any]) -> Iterator[None]:
    before = [float(ops.convert_to_numpy(layer.strength)) for layer in layers]
    try:
        for layer in layers:
            layer.strength.assign(0.0)
        yield
    finally:
        for layer, strength in zip(layers, before, strict=True):
            layer.strength.assign(strength)
