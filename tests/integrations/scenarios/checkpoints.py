"""Files of weights and of whole trainings, and the trained tower's own file."""

import keras
import numpy as np
import tensorflow as tf

from keras_bft.integrations.tfrs import Keras3Layer
from tests.integrations.scenarios.checks import FOLDER
from tests.integrations.scenarios.checks import expect_error
from tests.integrations.scenarios.two_towers import NUM_ITEMS
from tests.integrations.scenarios.two_towers import TwoTowers
from tests.integrations.scenarios.two_towers import clicks
from tests.integrations.scenarios.two_towers import dataset
from tests.integrations.scenarios.two_towers import new_model


def compiled(model):
    model.compile(tf.keras.optimizers.Adam(0.03))
    return model


def other_weights(model):
    """Changes all weights, seed states included."""
    for variable in model.variables:
        variable.assign(variable + tf.ones_like(variable))
    return model


def expect_equal(first, second):
    assert len(first.variables) == len(second.variables) > 0
    for one, other in zip(first.variables, second.variables, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.name)


def check_a_resumed_training_is_identical_with_its_dropout():
    whole = compiled(new_model(dropout=0.3, metrics=False))
    whole.fit(dataset(), epochs=2, verbose=0)
    checkpoint = tf.train.Checkpoint(model=whole, optimizer=whole.optimizer)
    path = checkpoint.save(str(FOLDER / "resumed"))
    whole.fit(dataset(), epochs=2, verbose=0)

    resumed = compiled(other_weights(new_model(dropout=0.3, metrics=False)))
    resumed.optimizer.build(resumed.trainable_variables)
    tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).restore(
        path
    ).assert_consumed()
    resumed.fit(dataset(), epochs=2, verbose=0)
    expect_equal(resumed, whole)
    for one, other in zip(
        resumed.optimizer.variables, whole.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    # Without the seed states dropout would begin anew.
    fresh = new_model(dropout=0.3, metrics=False)
    tf.train.Checkpoint(model=fresh).restore(path).expect_partial()
    moved = [
        np.any(restored.numpy() != initial.numpy())
        for restored, initial in zip(
            fresh.non_trainable_variables,
            new_model(dropout=0.3, metrics=False).non_trainable_variables,
            strict=True,
        )
        if "seed" in restored.name
    ]
    assert sum(moved) >= 3, moved
    # The next scenario serves this one.
    whole.query_tower.module.save(FOLDER / "tower.keras")
    histories, _ = clicks()
    np.savez(
        FOLDER / "tower.npz",
        histories=histories,
        queries=whole.query_tower(histories),
    )


class NamelessWeight(keras.layers.Layer):
    """Its weight has a name that Keras counts up."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(1,))

    def call(self, inputs):
        return inputs + self.weight


def check_what_is_restored_before_it_is_built():
    def module():
        return keras.Sequential(
            [
                keras.layers.Dense(3),
                keras.layers.Dropout(0.5, seed=1),
                NamelessWeight(),
            ]
        )

    first = Keras3Layer(module())
    first(tf.ones((1, 2)), training=True)
    path = tf.train.Checkpoint(layer=first).save(str(FOLDER / "deferred"))
    second = Keras3Layer(module())
    status = tf.train.Checkpoint(layer=second).restore(path)
    second(tf.ones((1, 2)))
    status.assert_consumed()
    expect_equal(first, second)
    # Built before it was wrapped, the names are the same.
    built = module()
    built.build((None, 2))
    third = Keras3Layer(built)
    tf.train.Checkpoint(layer=third).restore(path).assert_consumed()
    expect_equal(first, third)


def check_weights_in_the_format_of_tensorflow():
    first = new_model(dropout=0.3, metrics=False)
    first.save_weights(str(FOLDER / "weights"))
    second = other_weights(new_model(dropout=0.3, metrics=False))
    second.load_weights(str(FOLDER / "weights")).assert_consumed()
    expect_equal(first, second)


class Unnamed(keras.Model):
    """Its kernels have one name."""

    def __init__(self):
        super().__init__()
        self.blocks = [keras.layers.Dense(8) for _ in range(3)]

    def call(self, inputs):
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


def unnamed_model():
    model = tf.keras.Sequential([Keras3Layer(Unnamed())])
    model.build((None, 8))
    return model


def check_weights_in_hdf5():
    histories, _ = clicks()
    for name in ("old.h5", "new.weights.h5"):
        path = str(FOLDER / name)
        first = new_model(dropout=0.3, metrics=False)
        second = other_weights(new_model(dropout=0.3, metrics=False))
        for model in (first, second):
            model({"history": histories})
        first.save_weights(path)
        second.load_weights(path)
        expect_equal(first, second)
        names_apart = unnamed_model()
        names_apart.save_weights(path)
        again = other_weights(unnamed_model())
        again.load_weights(path)
        expect_equal(names_apart, again)
        different = tf.keras.Sequential([Keras3Layer(keras.layers.Dense(8))])
        different.build((None, 8))
        expect_error(ValueError, "eceived", different.load_weights, path)


def lora_layer():
    module = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(4)]
    )
    return Keras3Layer(module)


def enable_lora(layer):
    layer.module.layers[0].enable_lora(2)


def check_lora_is_in_the_files():
    first = lora_layer()
    enable_lora(first)
    first.module.layers[0].lora_kernel_b.assign(np.ones((2, 4)))
    path = tf.train.Checkpoint(layer=first).save(str(FOLDER / "lora"))
    second = lora_layer()
    status = tf.train.Checkpoint(layer=second).restore(path)
    expect_error(AssertionError, "lora", status.assert_consumed)
    enable_lora(second)
    tf.train.Checkpoint(layer=second).restore(path).assert_consumed()
    expect_equal(first, second)


def check_a_tied_table_is_restored_once():
    def tied():
        table = keras.layers.Embedding(NUM_ITEMS + 1, 8)
        towers = [
            keras.Sequential([keras.Input(shape, dtype="int32"), table, *rest])
            for shape, rest in (
                ((4,), [keras.layers.GlobalAveragePooling1D()]),
                ((), []),
            )
        ]
        return compiled(TwoTowers(*towers, metrics=False))

    first = tied()
    first.fit(dataset(), verbose=0)
    assert len(first.trainable_variables) == 1
    path = tf.train.Checkpoint(model=first).save(str(FOLDER / "tied"))
    second = tied()
    second.optimizer.build(second.trainable_variables)
    tf.train.Checkpoint(model=second).restore(path).assert_consumed()
    expect_equal(first, second)
    shared = second.query_tower.module.layers[0].embeddings.value
    assert second.item_tower.variables[0] is shared
