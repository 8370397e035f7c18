import csv
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_bft.diagnostics import trace
from keras_bft.layers import BFTLayer
from keras_bft.training import PrecisionMonitor
from keras_bft.training import ResumableTraining
from keras_bft.training._collapse import find_collapse

B, T, D = 2, 4, 8
RNG = np.random.default_rng(0)
PROBE = RNG.normal(size=(B, T, D)).astype("float32")
REAL = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
# Three batches.
X = RNG.normal(size=(12, T, D)).astype("float32")


def make(**options):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((T, D))
    state = inputs
    for index in range(2):
        layer = BFTLayer(2, 8, name=f"block_{index}", **options)
        state = layer(state)
    model = keras.Model(inputs, state)
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    return model


def fit(model, *callbacks, **options):
    arguments = {"epochs": 2, "batch_size": 4, "verbose": 0, "shuffle": False}
    history = model.fit(
        X, X, callbacks=list(callbacks), **{**arguments, **options}
    )
    return history.history


def read(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


class Snapshots(keras.callbacks.Callback):
    """What a trace of the probe gives after each epoch."""

    def __init__(self):
        super().__init__()
        self.gains = []

    def on_epoch_end(self, epoch, logs=None):
        gain = trace(self.model, PROBE)["block_1/residual/gain"]
        self.gains.append(gain[REAL].mean())


def test_logs_and_file_hold_the_means_over_real_tokens(tmp_path):
    path = tmp_path / "monitor.csv"
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    training = ResumableTraining(tmp_path / "checkpoint.npz")
    looks = Snapshots()
    monitor = PrecisionMonitor(PROBE, REAL, path, every=2)
    history = fit(make(), monitor, looks, logger, training)
    np.testing.assert_allclose(history["gain/block_1"], looks.gains, rtol=1e-6)
    assert history["gain/block_1"][0] != history["gain/block_1"][1]
    rows = read(path)
    names = ("epoch", "batch", "layer")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (epoch, batch, layer)
        for epoch in "12"
        for batch in "23"
        for layer in ("block_0", "block_1")
    ]
    last = rows[-1]
    for name in ("gain", "log_precision"):
        values = history[f"{name}/block_1"]
        assert float(last[name]) == values[-1]
        # What comes after it in the list sees the numbers.
        logged = [
            float(row[f"{name}/block_1"]) for row in read(logger.filename)
        ]
        np.testing.assert_allclose(logged, values)
        kept = [row[f"{name}/block_1"] for row in training.history]
        np.testing.assert_allclose(kept, values)

    # A training that goes on from the first epoch, and is cut off there.
    before = rows[:4]
    again = PrecisionMonitor(PROBE, REAL, path)
    fit(make(), again, initial_epoch=1, epochs=2)
    rows = read(path)
    assert rows[:4] == before
    assert [(row["epoch"], row["batch"]) for row in rows[4:]] == [
        ("2", "3")
    ] * 2


def test_the_training_is_not_changed():
    losses = fit(make())["loss"]
    watched = fit(make(), PrecisionMonitor(PROBE, every=1))["loss"]
    assert watched == losses


def test_a_collapse_is_told_once_for_each_layer():
    model = make()
    noise = model.get_layer("block_0").feed_forward.log_process_noise
    noise.assign(np.full(D, 40.0))
    monitor = PrecisionMonitor(PROBE, REAL, every=1)
    with pytest.warns(UserWarning, match="The layer") as caught:
        fit(model, monitor)
    # Beside those that Keras' torch backend gives.
    messages = [str(w.message) for w in caught]
    [message] = [text for text in messages if text.startswith("The layer")]
    assert "'block_0' predicts the precision of its process noise" in message
    assert "(epoch 1, after 1 batches)" in message


def values(**changes):
    rng = np.random.default_rng(0)
    prior = rng.normal(size=(6, 3))
    observed = rng.normal(size=(6, 3))
    return {
        "gain": 1.0 / (1.0 + np.exp(prior - observed)),
        "prior_log_precision": prior,
        "observation_log_precision": observed,
        "posterior_log_precision": np.logaddexp(prior, observed),
        "predicted_log_precision": -np.ones((6, 3)),
        "log_process_noise": np.zeros(3),
        **changes,
    }


@pytest.mark.parametrize(
    "changes, kinds",
    [
        ({}, set()),
        ({"gain": np.full((6, 3), 1e-4)}, {"zero"}),
        ({"observation_log_precision": np.full((6, 1), 12.0)}, {"one"}),
        # The gain of strength 0, between precisions that filter.
        ({"gain": np.ones((6, 3))}, set()),
        ({"posterior_log_precision": np.full((6, 3), -95.0)}, {"range"}),
        ({"posterior_log_precision": np.full((6, 3), 81.0)}, {"range"}),
        ({"predicted_log_precision": np.full((6, 3), -1e-4)}, {"noise"}),
        ({"gain": np.full((6, 3), np.nan)}, {"finite"}),
        ({"prior_log_precision": np.full((6, 1), np.inf)}, {"finite"}),
    ],
)
def test_each_kind_of_collapse(changes, kinds):
    assert set(find_collapse(values(**changes), 1e-3)) == kinds


def test_one_token_that_moves_is_no_collapse():
    gain = np.full((6, 3), 1e-4)
    gain[0, 0] = 0.5
    assert find_collapse(values(gain=gain), 1e-3) == {}


def test_a_gain_without_its_observation_is_judged_as_it_is():
    alone = values(gain=np.ones((6, 3)))
    del alone["observation_log_precision"]
    assert set(find_collapse(alone, 1e-3)) == {"one"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"every": 0}, "`every` must be a positive integer"),
        ({"tolerance": 0.5}, "`tolerance` must be.*Received: tolerance=0.5"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrecisionMonitor(PROBE, **options)


def test_what_does_not_fit_is_told_before_the_first_epoch(tmp_path):
    plain = keras.Sequential([keras.Input((T, D)), keras.layers.Dense(D)])
    plain.compile("sgd", "mse")
    with pytest.raises(ValueError, match="must have a filter layer"):
        fit(plain, PrecisionMonitor(PROBE))
    model = make()
    with pytest.raises(ValueError, match="`padding_mask` must have the shape"):
        fit(model, PrecisionMonitor(PROBE, REAL[0]))
    with pytest.raises(ValueError, match="must be true at some token"):
        fit(model, PrecisionMonitor(PROBE, REAL & False))
    path = tmp_path / "other.csv"
    header = "epoch,batch,layer,gain,log_precision\n"
    for rows in ("a,b\n1,2\n", header + "1,2,x\n", header + "1,2,x,y,3\n"):
        path.write_text(rows)
        with pytest.raises(ValueError, match="`path` must be a file that a Pr"):
            fit(model, PrecisionMonitor(PROBE, path=path))


def test_batches_may_end_in_any_order():
    monitor = PrecisionMonitor(PROBE)
    assert monitor.async_safe
    monitor.on_epoch_begin(0)
    for batch in (0, 2, 1):
        monitor.on_train_batch_end(batch)
    assert monitor._batches == 3
