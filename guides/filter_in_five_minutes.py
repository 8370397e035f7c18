"""
Title: The filter in five minutes
Author: the keras_bft developers
Date created: 2026/11/30
Description: A layer that learns which tokens to trust, on three backends.
"""

"""
## The idea

A Transformer layer treats every token as equally reliable. A Bayesian Filtering
Transformer layer carries a *precision* (an inverse variance) beside each
token's state. Attention weighs tokens by it, and what is added to a state is
scaled by a Kalman gain: much where the state is uncertain and the observation
is sure, little the other way round.

This guide builds such a model with the Functional API, trains it on readings of
sensors of which some are bad, looks at what it learned, and takes the trained
model to the other backends.

Keras reads the backend from the environment, before it is imported.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bft

keras.utils.set_random_seed(0)
print("backend:", keras.backend.backend())

# Set where the guide is tested: fewer examples and epochs, and other answers.
QUICK = "KERAS_BFT_QUICK" in os.environ
EXAMPLES, EPOCHS = (256, 2) if QUICK else (3072, 8)

"""
## Data: sensors, good and bad

Thirty sensors have noise of their own, of standard deviations from 0.1 to 3.
An example is ten readings of one quantity by sensors drawn at random; the
model is to tell the quantity. Nobody tells the model how good a sensor is.
"""

SENSORS, READINGS = 30, 10

rng = np.random.default_rng(0)
noise = np.exp(np.linspace(np.log(0.1), np.log(3.0), SENSORS))


def make_examples(number):
    """Sensor ids from 1 and their readings, and the quantity."""
    quantity = rng.normal(size=(number, 1))
    sensors = rng.integers(0, SENSORS, (number, READINGS))
    readings = quantity + noise[sensors] * rng.normal(size=sensors.shape)
    return {
        "sensor": (sensors + 1).astype("int32"),
        "reading": readings[..., None].astype("float32"),
    }, quantity.astype("float32")


train_inputs, train_quantity = make_examples(EXAMPLES)
test_inputs, test_quantity = make_examples(2048)

"""
## A model with the Functional API

The state of a token is its reading and its sensor, embedded.
`PrecisionEmbedding` holds a log-precision for every sensor; all start equal.
State and log-precision go through the layer as a pair.

With `bayesian=False` the same layer is the standard Transformer layer, so the
comparison is of the filter alone. Log-precisions have further to go than other
weights, so they get ten times the learning rate.
"""

WIDTH = 16


def make_model(bayesian):
    """A model of one layer."""
    sensor = keras.Input((READINGS,), dtype="int32", name="sensor")
    reading = keras.Input((READINGS, 1), name="reading")
    state = keras.layers.Dense(WIDTH)(reading)
    state = state + keras.layers.Embedding(SENSORS + 1, WIDTH)(sensor)
    layer = keras_bft.layers.BFTLayer(
        num_heads=2, feed_forward_dim=32, bayesian=bayesian, name="layer"
    )
    if bayesian:
        prior = keras_bft.layers.PrecisionEmbedding(SENSORS + 1, name="prior")
        state, log_precision = layer(state, prior(sensor))
        state = keras.layers.Concatenate()([state, log_precision])
    else:
        state = layer(state)
    pooled = keras.layers.GlobalAveragePooling1D()(state)
    return keras.Model([sensor, reading], keras.layers.Dense(1)(pooled))


models = {}
for name, bayesian in (("standard", False), ("filter", True)):
    keras.utils.set_random_seed(0)
    models[name] = make_model(bayesian)
    optimizer = keras.optimizers.Adam(0.01)
    if bayesian:
        optimizer = keras_bft.training.with_precision_learning_rate(
            optimizer, models[name], 10.0
        )
    models[name].compile(optimizer, "mse")
    models[name].fit(
        train_inputs, train_quantity, batch_size=128, epochs=EPOCHS, verbose=0
    )

"""
## What it learned

The best that can be done, for someone who knows the noise, is the mean of the
readings weighted by their precisions, shrunk towards zero as the quantity's
own distribution asks.
"""

precision = 1.0 / noise[test_inputs["sensor"] - 1] ** 2
weighted = np.sum(precision * test_inputs["reading"][..., 0], axis=1)
errors = {
    "plain mean": test_inputs["reading"].mean(axis=1)[:, 0],
    **{
        name: model.predict(test_inputs, batch_size=2048, verbose=0)[:, 0]
        for name, model in models.items()
    },
    "best, noise known": weighted / (precision.sum(axis=1) + 1.0),
}
for name, predicted in errors.items():
    error = np.mean((predicted - test_quantity[:, 0]) ** 2)
    print(f"mean squared error, {name:<18} {error:.4f}")

"""
The learned log-precisions, against the true ones. No loss ever named them: they
follow from which readings help. Only differences count, as adding a constant to
all changes no weight.
"""

prior = models["filter"].get_layer("prior")
learned = keras.ops.convert_to_numpy(
    prior(np.arange(1, SENSORS + 1)[None])
).reshape(-1)
true = -2.0 * np.log(noise)
correlation = np.corrcoef(learned, true)[0, 1]
print(f"correlation with the true log-precision: {correlation:.2f}")

figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.scatter(true, learned, color="#0072B2")
axes.set_xlabel("true log-precision of the sensor")
axes.set_ylabel("learned log-precision")
axes.spines[["top", "right"]].set_visible(False)
axes.grid(alpha=0.3)
plt.show()

"""
## Look inside

`trace` calls a model on a batch and returns what its filter layers computed:
kriging weights, effective sample size, precisions and gains, by name.
"""

few = {name: values[:256] for name, values in test_inputs.items()}
traced = keras_bft.diagnostics.trace(models["filter"], few)
print("\n".join(f"{name:<44} {x.shape}" for name, x in traced.items()))

"""
By the noise of the sensor, the weight that attention gives to a reading (the
ten of an example share one) and the gain of the reading's own state:
"""

weights = traced["layer/attention/kriging_weights"].mean(axis=(1, 2))
gain = traced["layer/residual/gain"].mean(axis=-1)
own_noise = noise[few["sensor"] - 1]
print("noise         weight  gain")
for low, high in ((0.1, 0.2), (0.2, 0.5), (0.5, 1.2), (1.2, 3.1)):
    chosen = (own_noise >= low) & (own_noise < high)
    means = weights[chosen].mean(), gain[chosen].mean()
    print(f"{low} to {high}   {means[0]:8.3f} {means[1]:5.2f}")

"""
Attention looks to the good sensors. The state of a good sensor is sure of
itself and takes on little of what attention observes; that of a bad one takes
on most of it. That is a Kalman update.
"""

state = rng.normal(size=(2, 5, WIDTH)).astype("float32")
standard = keras_bft.layers.BFTLayer(2, 32, bayesian=False)
off = keras_bft.layers.BFTLayer(2, 32, strength=0.0)
full = keras_bft.layers.BFTLayer(2, 32)
outputs = [layer(state) for layer in (standard, off, full)]
values = {weight.path.partition("/")[2]: weight for weight in standard.weights}
for layer in (off, full):
    for weight in layer.weights:
        name = weight.path.partition("/")[2]
        if name in values:
            weight.assign(values[name].value)


def difference(layer):
    """Largest difference from the standard layer's output."""
    return np.abs(
        keras.ops.convert_to_numpy(layer(state) - standard(state))
    ).max()


print(f"strength 0 is off the standard layer by {difference(off):.1e}")
print(f"strength 1 is off the standard layer by {difference(full):.2f}")
assert difference(off) < 1e-5

"""
## Three backends

A `.keras` file does not depend on the backend. The trained model answers the
same on the others that are installed. Load it with `compile=False` where it is
only asked: a model that was compiled on JAX is otherwise compiled on PyTorch
too, which takes about a minute there.
"""

PROGRAM = """
import sys

import keras
import numpy as np

import keras_bft

folder = sys.argv[1]
inputs = dict(np.load(f"{folder}/inputs.npz"))
model = keras.saving.load_model(f"{folder}/model.keras", compile=False)
np.save(f"{folder}/answers.npy", model.predict(inputs, verbose=0))"""

here = models["filter"].predict(few, verbose=0)
with tempfile.TemporaryDirectory() as folder:
    models["filter"].save(f"{folder}/model.keras")
    np.savez(f"{folder}/inputs.npz", **few)
    for backend in ("jax", "tensorflow", "torch"):
        if backend == keras.backend.backend():
            continue
        if importlib.util.find_spec(backend) is None:
            continue
        subprocess.run(
            [sys.executable, "-c", PROGRAM, folder],
            env=os.environ | {"KERAS_BACKEND": backend},
            check=True,
        )
        there = np.load(f"{folder}/answers.npy")
        print(f"{backend}: off by {np.abs(there - here).max():.1e}")
        assert np.abs(there - here).max() < 1e-4

"""
## Where to go from here

- *A Kalman filter you can check* compares every step with exact answers.
- *Cold-start recommendation* trains a recommender and reads its confidence.
- *How the mathematics was chosen* tells what is the paper's and what is not.
"""
