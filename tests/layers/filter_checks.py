"""What every layer that carries a precision has to do."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bft.layers import PrecisionEmbedding
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import symbolic
from tests.layers.layer_checks import variable_gradients

LENGTH, DIM = 4, 8


def check_drop_in_training(*layers: keras.layers.Layer) -> None:
    """Layers that are given the state alone train in a Sequential model."""
    ids = np.random.default_rng(0).integers(1, 9, size=(16, LENGTH))
    ids[::2, 3:] = 0
    targets = (ids == 3).any(1).astype("float32")
    model = keras.Sequential(
        [
            keras.layers.Embedding(9, DIM, mask_zero=True),
            *layers,
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.BinaryCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() != "torch",
    )
    losses = model.fit(ids, targets, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]


def check_pair_training(
    make_layer: Callable[[], keras.layers.Layer], *inputs: np.ndarray
) -> int:
    """Every weight trains where state and precision pass through layers.

    `inputs`, of two rows, are what the layers are given besides. Returns the
    number of weights.
    """
    ids = np.array([[1, 2, 3, 0], [4, 3, 0, 0]])
    symbols = symbolic([ids.astype("int32"), *inputs])
    state = keras.layers.Embedding(5, DIM, mask_zero=True)(symbols[0])
    log_precision = PrecisionEmbedding(5)(symbols[0])
    for _ in range(2):
        state, log_precision = make_layer()(state, log_precision, *symbols[1:])
    model = keras.Model(symbols, [state, log_precision])
    model.compile(keras.optimizers.Adam(0.01), ["mse", "mse"])
    before = {w.path: numpy(w) for w in model.trainable_weights}
    targets = [np.zeros((8, LENGTH, DIM)), np.ones((8, LENGTH, DIM))]
    losses = model.fit(
        [np.tile(x, (4, 1)) for x in (ids, *inputs)],
        targets,
        epochs=3,
        verbose=0,
    ).history["loss"]
    assert losses[-1] < losses[0]
    # Biases of keys do not: softmax ignores them.
    for weight in model.trainable_weights:
        if not weight.path.endswith("key/bias"):
            assert np.any(numpy(weight) != before[weight.path]), weight.path
    return len(before)


def check_rows_of_padding(
    layer: keras.layers.Layer,
    state: np.ndarray,
    log_precision: np.ndarray,
    padding: np.ndarray,
    **options: Any,
) -> list[np.ndarray]:
    """A row of padding alone is finite, and so are all gradients.

    Returns what the layer does when the second row is padding.
    """
    padding = padding.copy()
    padding[1] = False
    leaves = [keras.Variable(state), keras.Variable(log_precision)]

    def outputs() -> Any:
        values = [leaf.value for leaf in leaves]
        return layer(*values, padding_mask=padding, training=True, **options)

    def total() -> Any:
        after, its_log_precision = outputs()
        return keras.ops.sum(after) + keras.ops.sum(its_log_precision)

    results = arrays(outputs())
    _, gradients = variable_gradients(total, leaves + layer.trainable_variables)
    for array in results + gradients:
        assert np.all(np.isfinite(array))
    assert np.any(gradients[0] != 0)
    return results


def check_causality(
    make_layer: Callable[[], keras.layers.Layer],
    first: tuple[np.ndarray, ...],
    second: tuple[np.ndarray, ...],
) -> None:
    """Inputs that differ from position 3 on change nothing before it.

    Args:
        make_layer: Makes a layer with the same weights, which draws the same
            dropout again.
        first: What the layer is called on.
        second: The same with another end.
    """
    for training in (False, True):
        before, after = (
            arrays(make_layer()(*inputs, training=training))
            for inputs in (first, second)
        )
        for x, y in zip(before, after, strict=True):
            np.testing.assert_allclose(x[:, :3], y[:, :3], atol=1e-5)
            assert np.all(np.max(np.abs(x - y)[:, 3:], axis=-1) > 1e-3)
