"""Masks of attention that go by lists, hide a whole row or meet float16."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_bft.layers import BFTAttention
from keras_bft.layers import BFTHSTULayer
from keras_bft.layers import BFTLayer
from keras_bft.layers import GatedAttention
from keras_bft.layers import KalmanResidual
from keras_bft.layers._trace import listening
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients

B, T, D = 2, 4, 8
IDS = np.array([[1, 2, 3, 0], [0, 4, 0, 2]], "int32")
REAL = IDS > 0


@pytest.mark.parametrize(
    ("bayesian", "attention"),
    [(False, "auto"), (False, "blockwise"), (True, "auto")],
)
def test_every_way_to_attend_hides_the_future(bayesian, attention):
    rng = np.random.default_rng(0)
    state, changed = normal(rng, B, T, D), normal(rng, B, T, D)
    changed[:, :2] = state[:, :2]
    padding = np.array([[1, 1, 1, 1], [0, 1, 1, 1]], bool)

    def output(x, training):
        # The same weights, and the same dropout, each time.
        layer = BFTLayer(
            2,
            6,
            causal=True,
            bayesian=bayesian,
            attention=attention,
            dropout=0.5,
            seed=3,
        )
        layer.build((B, T, D))
        randomize(layer)
        return numpy(layer(x, padding_mask=padding, training=training))

    plain = contextlib.nullcontext
    # Dropout, and whoever asks for the weights, can change the way.
    for training, way in ((False, plain), (True, plain), (False, listening)):
        with way():
            first, second = (output(x, training) for x in (state, changed))
        np.testing.assert_allclose(first[:, :2], second[:, :2], atol=1e-5)
        assert np.all(np.max(np.abs(first - second)[:, 2:], axis=-1) > 1e-3)


def by_lists():
    """A model whose inputs come in a list, and masks with one of them."""
    ids = keras.Input((T,), dtype="int32", name="ids")
    log_precision = keras.Input((T, D), name="log_precision")
    outputs = keras.layers.Embedding(5, D, mask_zero=True)(ids), log_precision
    for _ in range(2):
        outputs = BFTLayer(2, 6)(*outputs)
    return keras.Model([ids, log_precision], list(outputs))


def test_masks_survive_lists_of_inputs_and_a_file(tmp_path):
    model = by_lists()
    randomize(model)
    rng = np.random.default_rng(0)
    first, other = normal(rng, B, T, D), 5.0 + normal(rng, B, T, D)
    # Padding may be as precise as it likes.
    other = np.where(REAL[..., None], first, other)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = arrays(model([IDS, first]))
    for again in (model, loaded):
        for inputs in ([IDS, other], {"ids": IDS, "log_precision": other}):
            for x, y in zip(arrays(again(inputs)), expected, strict=True):
                np.testing.assert_allclose(x[REAL], y[REAL], atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [BFTLayer(2, 6), BFTAttention(2), BFTHSTULayer(2, T), KalmanResidual()],
)
def test_a_state_and_its_precision_in_a_list_are_refused(layer):
    # A list of masks would come with it, and none would be the state's.
    with pytest.raises(ValueError, match="two arguments.*list of length 2"):
        layer([keras.Input((T, D)), keras.Input((T, D))])


@pytest.mark.parametrize(
    "make_layer",
    [
        lambda: BFTLayer(2, 6, form="full"),
        lambda: GatedAttention(2),
        lambda: BFTHSTULayer(2, T),
    ],
    ids=["filter", "gated", "hstu"],
)
def test_a_row_that_masks_hide_together_spoils_no_gradient(make_layer):
    # The third token sees the one before it alone, which is padding: neither
    # mask hides its whole row. Twice the same sequence; in the second one it
    # sees the first token. Nothing is asked of it, so that must not matter.
    rng = np.random.default_rng(0)
    state = np.tile(normal(rng, 1, T, D), (2, 1, 1))
    padding = np.tile([True, False, True, True], (2, 1))
    window = np.tile(np.tril(np.ones((T, T), bool)), (2, 1, 1))
    window[:, 2] = [False, True, False, False]
    window[1, 2, 0] = True
    asked = ops.convert_to_tensor([[1.0], [0.0], [0.0], [1.0]])
    layer = make_layer()
    layer.build((2, T, D))
    randomize(layer)
    leaf = keras.Variable(state)

    def loss():
        outputs = layer(leaf.value, padding_mask=padding, attention_mask=window)
        return ops.sum(ops.square(outputs) * asked)

    _, gradients = variable_gradients(loss, [leaf, *layer.trainable_variables])
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
    blind, seeing = gradients[0]
    np.testing.assert_allclose(blind, seeing, atol=1e-5)
    assert np.all(np.any(blind[[0, 3]] != 0, axis=-1))


@pytest.mark.parametrize("bayesian", [True, False])
def test_float16_hides_keys_whatever_they_score(bayesian):
    # The lowest float16 added to a score below zero is -inf.
    layer = BFTLayer(
        2, 6, causal=True, bayesian=bayesian, dtype="mixed_float16"
    )
    rng = np.random.default_rng(0)
    state, log_precision = normal(rng, B, T, D), normal(rng, B, T, D)
    layer.build((B, T, D))
    randomize(layer)
    for projection in (layer.attention.query_dense, layer.attention.key_dense):
        projection.kernel.assign(40.0 * numpy(projection.kernel))
    # The first tokens see no key, and the last row none at all.
    mask = np.array([[0, 1, 1, 0], [0, 0, 0, 0]], bool)
    expected = arrays(layer(state, log_precision, padding_mask=mask))
    state[~mask] = 1000.0 * normal(rng, np.sum(~mask), D)
    log_precision[~mask] = 30.0
    outputs = arrays(layer(state, log_precision, padding_mask=mask))
    for x, y in zip(outputs, expected, strict=True):
        assert np.all(np.isfinite(x)) and np.all(np.isfinite(y))
        np.testing.assert_array_equal(x[mask], y[mask])
