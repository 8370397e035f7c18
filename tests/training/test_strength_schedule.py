import keras
import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from keras_bft.training import StrengthSchedule
from tests.layers.layer_checks import numpy

ROWS = 6
X = np.random.default_rng(0).normal(size=(ROWS, 3, 4)).astype("float32")


def make_model(layers=2, **options):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3, 4))
    state = inputs
    for _ in range(layers):
        state = BFTLayer(2, 4, **{"strength": 0.5, **options})(state)
    # The filter layers are found inside of another model as well.
    body = keras.Model(inputs, state, name="body")
    model = keras.Model(inputs, body(inputs))
    model.compile(keras.optimizers.SGD(0.01), loss="mse")
    return model


class Probe(keras.callbacks.Callback):
    """Keeps what each step was computed with: the loss of SGD tells."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def fit(model, *callbacks, **options):
    return model.fit(
        X,
        0 * X,
        batch_size=3,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    ).history


def strengths(model):
    found = [
        float(numpy(variable.value))
        for variable in model.variables
        if variable.path.endswith("strength")
    ]
    assert len(set(found)) == 1
    return found[0]


def test_values():
    linear = StrengthSchedule(0.2, 1.0, steps=4)
    assert [linear.strength(i) for i in (0, 1, 4, 99)] == pytest.approx(
        [0.2, 0.4, 1.0, 1.0]
    )
    cosine = StrengthSchedule(1.0, 0.0, epochs=4, shape="cosine")
    assert [cosine.strength(i) for i in range(5)] == pytest.approx(
        [1.0, 0.853553, 0.5, 0.146447, 0.0], abs=1e-6
    )


def test_epochs():
    model = make_model()
    history = fit(model, StrengthSchedule(epochs=2), epochs=4)
    assert history["strength"] == [0.0, 0.5, 1.0, 1.0]
    assert strengths(model) == 1.0
    # Continued where another training stopped.
    again = make_model()
    history = fit(again, StrengthSchedule(epochs=8), initial_epoch=3, epochs=5)
    assert history["strength"] == [0.375, 0.5]


def test_steps_are_computed_with_their_strength():
    model, probe = make_model(), Probe()
    history = fit(model, StrengthSchedule(steps=4), probe, epochs=3)
    # Two steps an epoch; the last one begins the epoch's last change.
    assert history["strength"] == [0.25, 0.75, 1.0]
    # The same by hand: a training for each strength.
    by_hand, twin = Probe(), make_model()
    for step in range(6):
        half = slice(0, 3) if step % 2 == 0 else slice(3, 6)
        for variable in twin.variables:
            if variable.path.endswith("strength"):
                variable.assign(min(step / 4, 1.0))
        twin.fit(X[half], 0 * X[half], verbose=0, callbacks=[by_hand])
    # The logs of an epoch are the mean of its steps.
    want = np.array(by_hand.losses)
    want[1::2] = (want[0::2] + want[1::2]) / 2
    np.testing.assert_allclose(probe.losses, want, rtol=1e-5)
    for ours, theirs in zip(
        model.trainable_variables, twin.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(
            numpy(ours.value), numpy(theirs.value), atol=1e-6
        )
    # The count of the optimizer goes on in the next `fit`.
    history = fit(model, StrengthSchedule(steps=10), epochs=1)
    assert history["strength"] == [pytest.approx(0.7)]


def test_what_cannot_follow_is_refused():
    with pytest.raises(ValueError, match="no filter layer"):
        fit(make_model(bayesian=False), StrengthSchedule(epochs=1))
    with pytest.raises(ValueError, match="trainable_strength=False"):
        fit(make_model(trainable_strength=True), StrengthSchedule(epochs=1))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "epochs=None, steps=None"),
        ({"epochs": 1, "steps": 1}, "epochs=1, steps=1"),
        ({"epochs": 0}, "Received: epochs=0"),
        ({"steps": 1.5}, "Received: steps=1.5"),
        ({"epochs": 1, "start": -0.1}, "Received: start=-0.1"),
        ({"epochs": 1, "end": float("nan")}, "Received: end=nan"),
        ({"epochs": 1, "shape": "step"}, "Received: shape='step'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(options, error):
    with pytest.raises(ValueError, match=error):
        StrengthSchedule(**options)
