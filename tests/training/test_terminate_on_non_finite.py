import keras
import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from keras_bft.training import TerminateOnNonFinite
from tests.layers.layer_checks import numpy

T, D = 4, 8


def compiled(learning_rate=0.1):
    keras.utils.set_random_seed(0)
    inputs = [keras.Input((T, D)) for _ in range(2)]
    outputs = BFTLayer(2, 8, name="layer")(*inputs)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(learning_rate), ["mse", "mse"])
    return model


def fit(model, targets, callbacks, epochs=1):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2, len(targets), T, D)).astype("float32")
    return model.fit(
        [*inputs],
        [targets, targets],
        batch_size=2,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    ).history["loss"]


class Saved(keras.callbacks.Callback):
    """Counts the epochs after which a checkpoint would be written."""

    epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


def test_it_stops_at_the_step_that_spoils_a_weight():
    model = compiled()
    targets = np.zeros((6, T, D), "float32")
    targets[3] = np.nan
    with pytest.raises(FloatingPointError) as error:
        fit(model, targets, [TerminateOnNonFinite()])
    text = str(error.value)
    assert "after step 2 (epoch 1, batch 2;" in text
    assert "layer/attention/query/kernel (64 of 64 values)" in text
    assert "more" in text


@pytest.mark.parametrize("every", [2, 10])
def test_nothing_spoilt_is_saved(every):
    model = compiled()
    targets = np.zeros((6, T, D), "float32")
    targets[5] = np.inf
    saved = Saved()
    with pytest.raises(FloatingPointError, match=r"after step 3 \(epoch 1;"):
        fit(model, targets, [TerminateOnNonFinite(every), saved])
    assert saved.epochs == 0


def test_a_sound_training_is_as_without():
    targets = np.ones((6, T, D), "float32")
    models = [compiled(), compiled()]
    losses = [
        fit(model, targets, callbacks, epochs=2)
        for model, callbacks in zip(
            models, [[], [TerminateOnNonFinite()]], strict=True
        )
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for ours, wanted in zip(*(m.weights for m in models), strict=True):
        np.testing.assert_allclose(
            numpy(ours.value), numpy(wanted.value), atol=1e-6
        )


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_bad_arguments(every):
    with pytest.raises(ValueError, match=f"every={every}"):
        TerminateOnNonFinite(every)
