"""Numbers and saving of SASRec. Training: test_sasrec_training."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bft.losses import GBCE
from keras_bft.losses import FullSoftmax
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.reference_layer import bft_layer
from tests.layers.reference_layer import normalize
from tests.models.small_sasrec import DIM
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import MAX_LENGTH
from tests.models.small_sasrec import built
from tests.models.small_sasrec import each_form

# Of one padded length: JAX compiles for each.
SIMILAR = [[3, 5, 7, 2, 9, 1], [4, 4, 8, 6]]
HISTORIES = [[3, 5, 7, 2, 9, 1], [4, 4, 8], [6], [1, 2, 3, 4, 5, 6, 7, 8]]


def expected_states(model, items):
    """Final states, from the reference in float64, of right-padded items."""
    real = items > 0
    position = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    table = numpy(model.item_embedding.embeddings)
    state = table[items]
    state = state + numpy(model.position_embedding.embeddings)[position]
    if model.get_config()["scale_embeddings"]:
        state = state * np.sqrt(DIM)
    log_precision = numpy(model.prior.embeddings)[items]
    length = items.shape[1]
    visible = real[:, None] & np.tril(np.ones((length, length), bool))
    for block in model.blocks:
        state, log_precision = bft_layer(block, state, log_precision, visible)
    return normalize(model.final_norm, state)[0]


@each_form
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "token", "carry_units": False},
        {"normalize_first": False, "key_precision": "per_head"},
        {"scale_embeddings": False},
    ],
    ids=str,
)
def test_equals_the_reference(form, options):
    model = built(form=form, **options)
    randomize(model)
    expected = expected_states(model, ITEMS)
    np.testing.assert_allclose(numpy(model(ITEMS)), expected, atol=2e-5)
    scores = model.score([ITEMS[0], ITEMS[1, :3]])
    last = np.stack([expected[0, 5], expected[1, 2]])
    table = numpy(model.item_embedding.embeddings)
    np.testing.assert_allclose(
        scores[:, 1:], (last @ table.T)[:, 1:], rtol=1e-5, atol=5e-5
    )


def test_scores_do_not_depend_on_the_batch_or_its_padding():
    model = built(num_layers=1)
    randomize(model)
    scores = model.score(HISTORIES)[:, 1:]
    for row, history in enumerate(HISTORIES):
        alone = model.score([history])[0, 1:]
        np.testing.assert_allclose(alone, scores[row], atol=1e-5)
    # Only the newest items are read, however long the history.
    newest = model.score([HISTORIES[3][-MAX_LENGTH:]])[0, 1:]
    np.testing.assert_allclose(newest, scores[3], atol=1e-5)
    states = numpy(model(np.array([[6]])))[0, 0]
    table = numpy(model.item_embedding.embeddings)
    np.testing.assert_allclose(scores[2], (table @ states)[1:], atol=1e-5)


@each_form
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_policies(form, policy):
    model = built(form=form, num_layers=1)
    randomize(model)
    expected = model.score(SIMILAR)[:, 1:]
    mixed = built(form=form, num_layers=1, dtype=policy)
    mixed.set_weights(model.get_weights())
    states, log_precision = mixed.encode(ITEMS)
    assert keras.backend.standardize_dtype(states.dtype) == policy[6:]
    assert keras.backend.standardize_dtype(log_precision.dtype) == "float32"
    scores = mixed.score(SIMILAR)
    assert scores.dtype == "float32"
    np.testing.assert_allclose(
        scores[:, 1:], expected, atol=2e-2 * np.max(np.abs(expected))
    )


def test_saved_model_scores_the_same_and_trains_on(tmp_path):
    def train(model):
        history = model.fit(
            ITEMS, np.roll(ITEMS, -1, 1), epochs=3, shuffle=False, verbose=0
        )
        return history.history["loss"]

    model = built(num_layers=1, dropout=0.0, trainable_strength=True)
    model.compile(keras.optimizers.Adam(0.02), GBCE(3, calibration=0.5))
    train(model)
    expected = model.score(SIMILAR)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded.score(SIMILAR), expected)
    assert loaded.loss.get_config() == model.loss.get_config()
    assert type(loaded.loss) is GBCE
    for x, y in zip(
        loaded.optimizer.variables, model.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(numpy(x), numpy(y))
    # Keras saves no state of a seed generator, so negatives would differ.
    loaded.compile(loaded.optimizer, FullSoftmax())
    model.compile(model.optimizer, FullSoftmax())
    np.testing.assert_allclose(train(loaded), train(model), rtol=1e-5)
    for x, y in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_weights_of_one_backend_load_on_another(tmp_path):
    others = [
        name
        for name in ("torch", "jax", "tensorflow")
        if name != keras.backend.backend()
    ]
    if importlib.util.find_spec(others[0]) is None:
        pytest.skip(f"{others[0]} is not installed")
    model = built(num_layers=1)
    randomize(model)
    model.compile()
    model.save(tmp_path / "model.keras")
    program = (
        "import sys, keras, numpy as np, keras_bft;"
        "model = keras.saving.load_model(sys.argv[1]);"
        "assert keras.backend.backend() == sys.argv[3];"
        f"np.save(sys.argv[2], model.score({SIMILAR}))"
    )
    subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            tmp_path / "model.keras",
            tmp_path / "scores.npy",
            others[0],
        ],
        env={**os.environ, "KERAS_BACKEND": others[0]},
        check=True,
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "scores.npy")[:, 1:],
        model.score(SIMILAR)[:, 1:],
        atol=2e-5,
    )
