import keras
import numpy as np
import pytest

from keras_bft.data import TokenDataset
from keras_bft.training import TokensPerSecond
from keras_bft.training import tokens_per_second

ROWS = [np.arange(1, size) for size in (4, 5, 9, 10, 11, 5)]


class Clock:
    """Two seconds between any two looks."""

    now = 0.0

    def perf_counter(self):
        self.now += 2.0
        return self.now


@pytest.mark.parametrize("counted", [True, False])
def test_rates_are_tokens_over_seconds(monkeypatch, counted):
    monkeypatch.setattr(tokens_per_second, "time", Clock())
    dataset = TokenDataset(ROWS, tokens_per_batch=10, shuffle=False)
    counts = [dataset.num_tokens(i) for i in range(len(dataset))]
    if not counted:
        counts = [7] * len(dataset)
    inputs = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    state = keras.layers.Embedding(20, 4)(inputs)
    model = keras.Model(
        {"token_ids": inputs, "padding_mask": mask},
        keras.layers.Dense(20, activation="softmax")(state),
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["tokens_per_second"])

    history = model.fit(
        dataset,
        shuffle=False,
        verbose=0,
        callbacks=[TokensPerSecond(dataset if counted else 7), Look()],
    )
    seconds = 2.0 * np.arange(1, len(counts) + 1)
    np.testing.assert_allclose(seen, np.cumsum(counts) / seconds)
    [rate] = history.history["tokens_per_second"]
    assert rate == sum(counts[1:]) / seconds[len(counts) - 2]


@pytest.mark.parametrize("tokens", [0, "many", None])
def test_other_arguments_are_refused(tokens):
    with pytest.raises(ValueError, match="`tokens` must be"):
        TokensPerSecond(tokens)
