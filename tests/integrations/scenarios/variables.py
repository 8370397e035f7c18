"""What a wrapped module shows of its variables."""

import keras
import numpy as np
import tensorflow as tf

from keras_bft.integrations.tfrs import Keras3Layer
from tests.integrations.scenarios.checks import expect_error
from tests.integrations.scenarios.modules import Members
from tests.integrations.scenarios.modules import Subclassed
from tests.integrations.scenarios.modules import Tied
from tests.integrations.scenarios.two_towers import query_tower


def expect_shown(layer, variables):
    """The layer shows the `tf.Variable`s of these, each once."""
    shown = layer.variables
    assert all(isinstance(variable, tf.Variable) for variable in shown)
    assert len({id(variable) for variable in shown}) == len(shown)
    assert {id(variable) for variable in shown} == {
        id(variable.value) for variable in variables
    }


def gradients(layer, *inputs):
    """Gradients of the squared outputs, by the name of the variable."""
    with tf.GradientTape() as tape:
        loss = sum(
            tf.reduce_sum(output**2)
            for output in tf.nest.flatten(layer(*inputs))
        )
    variables = layer.trainable_variables
    return dict(
        zip(
            [variable.name.split(":")[0] for variable in variables],
            tape.gradient(loss, variables),
            strict=True,
        )
    )


def check_functional_with_seeds():
    tower = query_tower(dropout=0.3)
    layer = Keras3Layer(tower)
    assert layer.module is tower and layer.name == "query_tower"
    expect_shown(layer, tower.variables)
    assert len(layer.trainable_variables) == len(tower.trainable_variables)
    assert any("seed" in v.name for v in layer.non_trainable_variables)
    ids = np.array([[0, 1, 2, 3]])
    np.testing.assert_array_equal(layer(ids), tower(ids))
    assert all(g is not None for g in gradients(layer, ids).values())
    # In a Keras 2 functional model too.
    inputs = tf.keras.Input((4,), dtype="int32")
    model = tf.keras.Model(inputs, layer(inputs))
    np.testing.assert_allclose(model(ids), tower(ids), atol=1e-6)
    assert len(model.weights) == len(tower.variables)
    # And in a module of TensorFlow alone.
    model = tf.Module()
    model.towers = [layer]
    assert len(model.variables) == len(tower.variables)


def check_subclassed_and_nested_is_built_at_the_first_call():
    module = Subclassed()
    layer = Keras3Layer(module, name="mine")
    assert layer.name == "mine" and layer.trainable_variables == []

    @tf.function
    def first_call(state):
        return layer({"state": state})

    outputs = first_call(tf.ones((4, 5)))
    assert {k: v.shape.as_list() for k, v in outputs.items()} == {
        "out": [4, 2],
        "state": [4, 3],
    }
    assert len(module.variables) == 7
    expect_shown(layer, module.variables)
    assert all(isinstance(v.numpy(), np.ndarray) for v in module.variables)
    grads = gradients(layer, {"state": tf.ones((4, 5))})
    assert len(grads) == 6 and all(g is not None for g in grads.values())


def check_tied_table_is_one_variable():
    module = Tied()
    layer = Keras3Layer(module)
    ids = tf.constant([0, 2])
    layer(ids)
    assert len(layer.variables) == 1
    (gradient,) = gradients(layer, ids).values()
    # Rows that are not looked up have a gradient as output kernels.
    assert np.all(np.any(tf.convert_to_tensor(gradient) != 0, axis=1))
    # Two layers of one model that share a table.
    other = Keras3Layer(keras.Sequential([keras.Input(()), module.table]))
    assert len(Members(layer, other).trainable_variables) == 1


def check_frozen_and_unfrozen():
    module = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, name="first"),
            keras.layers.Dense(2, name="last"),
        ],
        name="frozen",
    )
    module.layers[0].trainable = False
    layer = Keras3Layer(module)
    assert list(gradients(layer, tf.ones((1, 3)))) == [
        "frozen/last/kernel",
        "frozen/last/bias",
    ]
    assert len(layer.non_trainable_variables) == 2
    module.layers[0].trainable = True
    found = gradients(layer, tf.ones((1, 3)))
    assert len(found) == 4 and all(g is not None for g in found.values())
    # Frozen as a layer of Keras 2.
    layer.trainable = False
    assert layer.trainable_variables == []
    expect_shown(layer, module.variables)
    assert len(layer.non_trainable_variables) == 4


def check_frozen_before_it_is_built():
    module = keras.layers.Dense(2)
    module.trainable = False
    layer = Keras3Layer(module)
    layer(tf.ones((1, 3)))
    assert layer.trainable_variables == []
    module.trainable = True
    found = gradients(layer, tf.ones((1, 3)))
    assert len(found) == 2 and all(g is not None for g in found.values())


def check_lora_after_wrapping():
    module = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    layer = Keras3Layer(module)
    model = tf.keras.Sequential([layer])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    x, y = tf.ones((8, 3)), tf.ones((8, 4))
    model.fit(x, y, verbose=0)
    module.layers[0].enable_lora(2)
    expect_shown(layer, module.variables)
    assert [v.name for v in module.trainable_variables] == [
        "bias",
        "lora_kernel_a",
        "lora_kernel_b",
    ]
    # The optimizer that knows the old variables says so.
    expect_error(KeyError, "cannot recognize variable", refit, model, x, y)
    kernel = module.layers[0]._kernel.numpy()
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    first = model.evaluate(x, y, verbose=0)
    model.fit(x, y, epochs=20, verbose=0)
    assert model.evaluate(x, y, verbose=0) < 0.1 * first
    np.testing.assert_array_equal(kernel, module.layers[0]._kernel.numpy())
    assert np.any(module.layers[0].lora_kernel_b.numpy() != 0)


def refit(model, x, y):
    """One step with the functions traced anew."""
    model.make_train_function(force=True)
    model.fit(x, y, verbose=0)
