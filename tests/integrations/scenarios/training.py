"""Training of wrapped towers: tasks, metrics, optimizers, strategies."""

import keras
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

from keras_bft.integrations.tfrs import Keras3Layer
from tests.integrations.scenarios.two_towers import NUM_ITEMS
from tests.integrations.scenarios.two_towers import TwoTowers
from tests.integrations.scenarios.two_towers import clicks
from tests.integrations.scenarios.two_towers import dataset
from tests.integrations.scenarios.two_towers import item_tower
from tests.integrations.scenarios.two_towers import new_model

# One for all checks, since the numbers of its collective operations must not
# repeat in a process.
STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def expect_training(model, epochs=8, data=None, **fit_options):
    """Fits a model; all its weights must move, and its loss must fall."""
    before = [variable.numpy() for variable in model.trainable_variables]
    data = dataset() if data is None else data
    history = model.fit(data, epochs=epochs, verbose=0, **fit_options).history
    losses = history["loss"]
    assert np.all(np.isfinite(losses)), losses
    assert losses[-1] < 0.9 * losses[0], losses
    for old, variable in zip(before, model.trainable_variables, strict=True):
        assert np.all(np.isfinite(variable.numpy())), variable.name
        assert np.any(variable.numpy() != old), variable.name
    return history


def check_adam_with_metrics_equal_to_a_ranking_in_numpy():
    model = new_model()
    model.compile(tf.keras.optimizers.Adam(0.03))
    expect_training(model)
    results = model.evaluate(dataset(), return_dict=True, verbose=0)
    histories, targets = clicks()
    queries = model.query_tower(histories).numpy()
    table = model.item_tower(np.arange(1, NUM_ITEMS + 1)).numpy()
    order = np.argsort(-queries @ table.T, axis=1) + 1
    for k in (1, 3):
        expected = np.mean((order[:, :k] == targets[:, None]).any(axis=1))
        name = f"factorized_top_k/top_{k}_categorical_accuracy"
        np.testing.assert_allclose(results[name], expected, atol=1e-6)
    assert results["factorized_top_k/top_3_categorical_accuracy"] > 0.6


def check_adagrad_compiled_by_xla_or_not():
    weights = []
    for jit_compile in (True, False):
        model = new_model(metrics=False)
        optimizer = tf.keras.optimizers.Adagrad(0.3)
        model.compile(optimizer, jit_compile=jit_compile)
        model.fit(dataset(), verbose=0)
        weights.append(model.get_weights())
        expect_training(model)
    for compiled, plain in zip(*weights, strict=True):
        np.testing.assert_allclose(compiled, plain, atol=1e-4)


def check_hard_negatives_with_a_legacy_optimizer():
    model = new_model(
        metrics=False,
        num_hard_negatives=3,
        remove_accidental_hits=True,
        temperature=0.5,
        batch_metrics=[tf.keras.metrics.TopKCategoricalAccuracy(1, "top_1")],
    )
    model.compile(tf.keras.optimizers.legacy.Adam(0.03))
    history = expect_training(model)
    assert history["top_1"][-1] > history["top_1"][0]


def check_dropout_follows_training():
    model = new_model(dropout=0.5, metrics=False)
    histories, _ = clicks()
    layer = model.query_tower
    first, second = (layer(histories, training=True) for _ in range(2))
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(layer(histories), layer(histories))
    # `fit` trains with dropout and `evaluate` measures without.
    model.compile(tf.keras.optimizers.Adam(0.03))
    expect_training(model)
    seeds = [v.numpy() for v in layer.non_trainable_variables]
    loss = model.evaluate(dataset(), return_dict=True, verbose=0)["loss"]
    again = model.evaluate(dataset(), return_dict=True, verbose=0)["loss"]
    assert loss == again
    for before, variable in zip(
        seeds, layer.non_trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(before, variable)


def check_bfloat16_module_between_float32_neighbours():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = new_model(metrics=False)
    assert model.query_tower.module.compute_dtype == "bfloat16"
    histories, _ = clicks()
    assert model.query_tower.module(histories).dtype == tf.bfloat16
    assert model.query_tower(histories).dtype == tf.float32
    assert {v.dtype for v in model.trainable_variables} == {tf.float32}
    model.compile(tf.keras.optimizers.Adam(0.03))
    expect_training(model)


def check_bfloat16_policy_of_tf_keras():
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        layer = Keras3Layer(item_tower())
        half = layer(np.arange(3))
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    # The module computes by its own policy; the output fits the neighbours'.
    assert half.dtype == tf.bfloat16
    exact = layer.module(np.arange(3))
    np.testing.assert_allclose(
        tf.cast(half, "float32"), exact, atol=1e-2, rtol=1e-2
    )


def check_two_devices_with_dropout_and_the_retrieval_task():
    with STRATEGY.scope():
        model = new_model(dropout=0.2, metrics=False)
        model.compile(tf.keras.optimizers.Adam(0.03))
    expect_training(model)


def check_a_module_must_be_built_in_the_scope():
    with STRATEGY.scope():
        layer = Keras3Layer(keras.layers.Dense(2))
    try:
        STRATEGY.run(layer, [tf.ones((2, 3))])
    except ValueError as error:
        assert "must be built in the strategy's scope" in str(error)
    else:
        raise AssertionError("No error")


def small_towers(library):
    """Towers that need no Keras 3, of `keras` or of `tf.keras`."""
    layers = library.layers
    query = [
        layers.Embedding(NUM_ITEMS + 1, 8),
        layers.GlobalAveragePooling1D(),
        layers.Dense(8, "gelu"),
        layers.Dense(8),
    ]
    item = [layers.Embedding(NUM_ITEMS + 1, 8)]
    return library.Sequential(query), library.Sequential(item)


class Pairs(TwoTowers):
    """Its loss does not depend on which pairs are on the same device."""

    def compute_loss(self, features, training=False):
        query = self.query_tower(features["history"], training=training)
        item = self.item_tower(features["item"], training=training)
        return tf.reduce_mean((query - item) ** 2)


def check_two_devices_equal_one():
    assert STRATEGY.num_replicas_in_sync == 2

    def train(replicas):
        keras.utils.set_random_seed(0)
        model = Pairs(*small_towers(keras), metrics=False)
        model.compute_loss(next(iter(dataset())))
        # Keras 2 adds up the gradients of the devices.
        model.compile(tf.keras.optimizers.SGD(5.0 / replicas))
        return model

    with STRATEGY.scope():
        mirrored = train(2)
    assert "Mirrored" in type(mirrored.trainable_variables[0]).__name__
    single = train(1)
    for model in (mirrored, single):
        expect_training(model, epochs=4)
    for several, one in zip(
        mirrored.get_weights(), single.get_weights(), strict=True
    ):
        np.testing.assert_allclose(several, one, atol=1e-5)


class KerasTowers(TwoTowers):
    """The same without the adapter: layers of `tf.keras` 2."""

    def __init__(self, query, item):
        tfrs.Model.__init__(self)
        self.query_tower = query
        self.item_tower = item
        self.task = tfrs.tasks.Retrieval()


def check_equal_to_towers_of_tf_keras_over_12_steps():
    wrapped = TwoTowers(*small_towers(keras), metrics=False)
    native = KerasTowers(*small_towers(tf.keras))
    batch = next(iter(dataset()))
    for model in (wrapped, native):
        model.compute_loss(batch)
    native.query_tower.set_weights(wrapped.query_tower.get_weights())
    native.item_tower.set_weights(wrapped.item_tower.get_weights())
    losses = []
    for model in (wrapped, native):
        model.compile(tf.keras.optimizers.Adam(0.03))
        history = model.fit(dataset(), epochs=3, verbose=0).history
        losses.append(history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)
    for ours, theirs in zip(
        wrapped.get_weights(), native.get_weights(), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
