"""Losses, masks and the configuration of the layer, and what is refused."""

import doctest
import json
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_bft
from keras_bft.integrations import tfrs as adapter
from keras_bft.integrations.tfrs import Keras3Layer
from tests.integrations.scenarios.checks import expect_error
from tests.integrations.scenarios.modules import Members
from tests.integrations.scenarios.modules import Tied
from tests.integrations.scenarios.two_towers import new_model
from tests.integrations.scenarios.two_towers import query_tower


def check_losses_of_regularizers_count_once():
    module = Tied(embeddings_regularizer=keras.regularizers.L2(0.5))
    first = Keras3Layer(module)
    ids = tf.constant([1, 2])
    first(ids)
    second = Keras3Layer(keras.Sequential([keras.Input(()), module.table]))
    expected = 0.5 * np.sum(module.table.embeddings.numpy() ** 2)
    for members in ([first], [second], [first, second], [second, second]):
        model = Members(*members)
        for member in members:
            member(ids)
        np.testing.assert_allclose(model.losses, [expected], rtol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.add_n(model.losses)
    (gradient,) = tape.gradient(loss, model.trainable_variables)
    np.testing.assert_allclose(gradient, module.table.embeddings, rtol=1e-6)
    module.table.trainable = False
    assert model.losses == []


class AddsLoss(keras.layers.Layer):
    """Adds a loss in each call."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_regularizer="l2")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        self.add_loss(keras.ops.sum(inputs))
        return self.dense(inputs)


def check_losses_added_in_a_call():
    layer = Keras3Layer(AddsLoss())
    model = tf.keras.Sequential([layer])
    for value in (2.0, 1.0):
        model(tf.fill((2, 3), value))
        kernel = layer.module.dense.kernel.numpy()
        regularization = 0.01 * np.sum(kernel**2)
        np.testing.assert_allclose(
            sorted(layer.losses), [regularization, 6 * value], rtol=1e-5
        )
    model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    loss = model.evaluate(tf.ones((2, 3)), tf.zeros((2, 1)), verbose=0)
    error = np.sum(kernel) ** 2
    np.testing.assert_allclose(loss, 6.0 + regularization + error, rtol=1e-5)


def check_masks_come_in_and_do_not_go_out():
    module = keras.layers.GRU(2, return_sequences=True)
    layer = Keras3Layer(module)
    states = tf.keras.layers.Embedding(5, 3, mask_zero=True)(
        tf.constant([[1, 2, 0]])
    )
    outputs = layer(states)
    np.testing.assert_array_equal(outputs[:, 1], outputs[:, 2])
    assert getattr(outputs, "_keras_mask", None) is None
    embedding = keras.layers.Embedding(5, 3, mask_zero=True)
    outputs = Keras3Layer(embedding)(tf.constant([[1, 0]]))
    assert embedding(tf.constant([[1, 0]]))._keras_mask is not None
    assert getattr(outputs, "_keras_mask", None) is None


def check_what_is_not_a_keras_3_module_is_refused():
    expect_error(TypeError, "Keras 3 layer or model", Keras3Layer, "tower")
    native = tf.keras.layers.Dense(2)
    expect_error(TypeError, "is used as it is", Keras3Layer, native)


def check_config_makes_an_equal_layer_and_is_not_registered():
    layer = Keras3Layer(query_tower(dropout=0.2), name="tower")
    again = Keras3Layer.from_config(layer.get_config())
    assert json.dumps(again.get_config()) == json.dumps(layer.get_config())
    assert again.name == "tower" and again.module is not layer.module
    again.set_weights(layer.get_weights())
    ids = np.array([[0, 1, 2, 3]])
    np.testing.assert_array_equal(layer(ids), again(ids))
    for library in (tf.keras.utils, keras.saving):
        assert library.get_registered_name(Keras3Layer) == "Keras3Layer"


def check_forgotten_wrappers_are_found():
    model = new_model()
    adapter.check_wrapped(model)
    model.stray = {"a": [keras.layers.Dense(2)]}
    model.task.factorized_metrics[0].stray = keras.metrics.Mean()
    model.query_tower.variable = keras.Variable(0.0)
    error = expect_error(TypeError, "Keras3Layer", adapter.check_wrapped, model)
    for text in (
        "TwoTowers.stray['a'][0], a Keras 3 Dense",
        "_factorized_metrics[0].stray, a Keras 3 Mean",
        "TwoTowers.query_tower.variable, a Keras 3 Variable",
    ):
        assert text in error, error
    index = tf.keras.Sequential()
    index.query_model = query_tower()
    expect_error(
        TypeError, "query_model, a Keras 3", adapter.check_wrapped, index
    )


def check_docstring_examples():
    for name in ("keras3_layer", "check_wrapped"):
        module = sys.modules[f"{adapter.__name__}.{name}"]
        results = doctest.testmod(
            module,
            extraglobs={"keras_bft": keras_bft},
            optionflags=doctest.ELLIPSIS,
        )
        assert results.attempted and not results.failed, module
