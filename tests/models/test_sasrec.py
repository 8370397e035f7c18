"""Arguments, saving and numbers of SASRec. Training: test_sasrec_training."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bft.losses import GBCE
from keras_bft.losses import FullSoftmax
from keras_bft.models import SASRec
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import copy_weights
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.layer_checks import weighted_sum
from tests.layers.reference_layer import bft_layer
from tests.layers.reference_layer import normalize

NUM_ITEMS, MAX_LENGTH, DIM = 9, 6, 8
SIZES = {
    "num_items": NUM_ITEMS,
    "max_length": MAX_LENGTH,
    "embedding_dim": DIM,
}
ITEMS = np.array([[3, 5, 7, 2, 9, 1], [4, 4, 8, 0, 0, 0]], "int32")
# Of one padded length: JAX compiles for each.
SIMILAR = [[3, 5, 7, 2, 9, 1], [4, 4, 8, 6]]
HISTORIES = [[3, 5, 7, 2, 9, 1], [4, 4, 8], [6], [1, 2, 3, 4, 5, 6, 7, 8]]
each_form = pytest.mark.parametrize("form", ["light", "full"])


def built(**options):
    model = SASRec(**{**SIZES, **options})
    model.build((None, MAX_LENGTH))
    return model


def test_config():
    model = check_config(
        SASRec,
        num_items=9,
        max_length=6,
        embedding_dim=8,
        num_layers=3,
        num_heads=4,
        feed_forward_dim=5,
        dropout=0.25,
        bayesian=False,
        form="light",
        prior="mlp",
        precision="token",
        key_precision="per_head",
        carry_units=False,
        strength=0.5,
        trainable_strength=True,
        scale_embeddings=False,
        dropout_mode="renormalized",
        activation="relu",
        normalize_first=False,
        gated_attention=True,
        layer_options={"prior_dof": 2.0},
        seed=4,
    )
    expected = {
        "num_heads": 4,
        "feed_forward_dim": 5,
        "dropout": 0.25,
        "bayesian": False,
        "form": "light",
        "precision": "token",
        "key_precision": "per_head",
        "carry_units": False,
        "strength": 0.5,
        "trainable_strength": True,
        "dropout_mode": "renormalized",
        "activation": "relu",
        "normalize_first": False,
        "causal": True,
    }
    assert len(model.blocks) == 3
    for block in model.blocks:
        config = block.get_config()
        assert {name: config[name] for name in expected} == expected
    assert len({block.get_config()["seed"] for block in model.blocks}) == 3


@pytest.mark.parametrize(
    ("carry_units", "scale_embeddings", "variance"),
    [(False, True, 1.0), (True, True, 1.0), (True, False, 1.0 / DIM)],
)
@pytest.mark.parametrize("prior", ["item", "mlp"])
def test_the_filter_starts_at_a_ratio_of_one(
    carry_units, scale_embeddings, variance, prior
):
    model = built(
        carry_units=carry_units, scale_embeddings=scale_embeddings, prior=prior
    )
    log_variance = np.log(variance)
    embedded = keras.ops.zeros((2, MAX_LENGTH, DIM))
    start = model.prior(ITEMS if prior == "item" else embedded)
    np.testing.assert_allclose(numpy(start), -log_variance, atol=1e-6)
    for block in model.blocks:
        noise = block.feed_forward.log_process_noise
        np.testing.assert_allclose(numpy(noise), log_variance - 2.0, rtol=1e-6)


@pytest.mark.parametrize("scale_embeddings", [False, True])
def test_embeddings_have_the_variance_that_the_prior_says(scale_embeddings):
    keras.utils.set_random_seed(0)
    model = SASRec(2000, 4, 16, scale_embeddings=scale_embeddings)
    model.build((None, 4))
    embedded = numpy(model.item_embedding.embeddings)
    if scale_embeddings:
        embedded = 4.0 * embedded
    start = numpy(model.prior.embeddings)
    np.testing.assert_allclose(start, -np.log(np.var(embedded)), atol=0.05)


@pytest.mark.parametrize("prior", ["item", "mlp"])
@pytest.mark.parametrize("precision", ["channel", "token"])
def test_the_filter_adds_its_precision_parameters_alone(prior, precision):
    plain = built(bayesian=False)
    filtered = built(prior=prior, precision=precision)
    noise = DIM if precision == "channel" else 1
    priors = {"item": NUM_ITEMS + 1, "mlp": (DIM + 1) * 16 + 16 + 1}[prior]
    # Two layers, each with its process noise and its strength.
    assert filtered.count_params() - plain.count_params() == (
        priors + 2 * (noise + 1)
    )
    # The last layer's process noise reaches no score.
    trainable = {w.path.split("/", 1)[1] for w in filtered.trainable_weights}
    added = trainable - {
        w.path.split("/", 1)[1] for w in plain.trainable_weights
    }
    names = {
        "item": {"log_precision"},
        "mlp": {
            f"{part}/{kind}"
            for part in ("hidden", "log_precision")
            for kind in ("kernel", "bias")
        },
    }[prior]
    assert added == {f"prior/{name}" for name in names} | {
        "block_0/feed_forward/log_process_noise"
    }


@pytest.mark.parametrize("prior", ["item", "mlp"])
def test_plain_and_filtered_start_from_the_same_weights(prior):
    models = []
    for options in ({"bayesian": False}, {"prior": prior}):
        keras.utils.set_random_seed(7)
        models.append(built(**options))
    plain, filtered = models
    before = plain.get_weights()
    copy_weights(filtered, plain)
    for x, y in zip(plain.get_weights(), before, strict=True):
        np.testing.assert_array_equal(x, y)
    keras.utils.set_random_seed(8)
    other = built(bayesian=False)
    assert np.any(
        numpy(other.item_embedding.embeddings)
        != numpy(plain.item_embedding.embeddings)
    )


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


@each_form
def test_strength_zero_is_plain_sasrec(form):
    plain = built(bayesian=False)
    filtered = built(form=form, strength=0.0)
    randomize(plain)
    named = {w.path.split("/", 1)[1]: w for w in filtered.weights}
    shared = []
    for weight in plain.trainable_weights:
        shared.append(named[weight.path.split("/", 1)[1]])
        shared[-1].assign(weight)
    filtered.prior.embeddings.assign(
        np.random.default_rng(0).normal(size=(NUM_ITEMS + 1, 1))
    )
    real = ITEMS > 0
    expected = numpy(plain(ITEMS))
    np.testing.assert_allclose(
        numpy(filtered(ITEMS))[real], expected[real], atol=1e-5
    )
    value, gradients = variable_gradients(
        lambda: weighted_sum(plain(ITEMS), real), plain.trainable_weights
    )
    again, filtered_gradients = variable_gradients(
        lambda: weighted_sum(filtered(ITEMS), real), shared
    )
    assert again == pytest.approx(value, rel=1e-5)
    for weight, x, y in zip(shared, gradients, filtered_gradients, strict=True):
        np.testing.assert_allclose(
            x, y, rtol=1e-5, atol=2e-5, err_msg=weight.path
        )
    filtered.blocks[0].strength.assign(1.0)
    changed = numpy(filtered(ITEMS))[real]
    assert np.max(np.abs(changed - expected[real])) > 1e-2


@each_form
def test_a_row_of_padding_is_finite(form):
    items = ITEMS.copy()
    items[1] = 0
    for mode in ("renormalized", "inverted"):
        model = built(form=form, dropout=0.5, dropout_mode=mode, seed=1)
        for output in arrays(model.encode(items, training=True)):
            assert np.all(np.isfinite(output))
        _, gradients = variable_gradients(
            lambda model=model: weighted_sum(model(items, training=True)),
            model.trainable_weights,
        )
        for gradient in gradients:
            assert np.all(np.isfinite(gradient))


@each_form
@pytest.mark.parametrize("training", [False, True])
def test_a_future_item_changes_no_earlier_state(form, training):
    changed = ITEMS.copy()
    changed[:, 3:] = [[8, 8, 6], [1, 2, 3]]
    before, after = (
        numpy(built_again(form)(items, training=training))
        for items in (ITEMS, changed)
    )
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-5)
    assert np.all(np.max(np.abs(before - after)[:, 3:], axis=-1) > 1e-2)


def built_again(form):
    """The same weights and the same dropout each time."""
    keras.utils.set_random_seed(5)
    model = built(form=form, dropout=0.3, seed=2)
    randomize(model)
    return model


@pytest.mark.parametrize("bayesian", [False, True])
def test_padding_may_stand_right_left_or_nowhere(bayesian):
    model = built(bayesian=bayesian)
    randomize(model)
    expected = numpy(model(np.array([[4, 4, 8]])))[0]
    for row in ([4, 4, 8, 0, 0, 0], [0, 0, 0, 4, 4, 8], [0, 4, 4, 8, 0, 0]):
        items = np.array([row])
        states = numpy(model(items))[items > 0]
        np.testing.assert_allclose(states, expected, atol=1e-5)


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


def test_the_order_of_the_items_matters():
    model = built()
    randomize(model)
    items = np.array([[1, 2, 3, 0, 0, 0], [2, 1, 3, 0, 0, 0]])
    first, second = numpy(model(items))[:, 2]
    assert np.max(np.abs(first - second)) > 1e-2


def test_prior_starts_at_what_the_counts_support():
    model = built(embedding_dim=16, scale_embeddings=False)
    counts = np.array([99, 1, 2, 3, 4, 5, 6, 7, 0, 40])
    model.initialize_prior(counts, pseudo_count=0.5)
    prior = numpy(model.prior.embeddings)[:, 0]
    start = np.log(16.0)  # Embeddings have a variance of 1 / 16.
    assert prior[0] == pytest.approx(start)
    expected = np.log(counts[1:] + 0.5)
    np.testing.assert_allclose(np.diff(prior[1:]), np.diff(expected), atol=1e-5)
    assert np.average(prior[1:], weights=counts[1:]) == pytest.approx(start)


@pytest.mark.parametrize(
    "options, counts, message",
    [
        ({"prior": "mlp"}, np.ones(10), "Received: prior='mlp'"),
        ({"prior": "constant"}, np.ones(10), "Received: prior='constant'"),
        ({"bayesian": False}, np.ones(10), "bayesian=False"),
        ({}, np.ones(9), r"shape \(9,\)"),
        ({}, -np.ones(10), "smallest -1"),
        ({}, np.zeros(10), "sum to 0"),
    ],
)
def test_counts_that_fit_no_prior_raise(options, counts, message):
    with pytest.raises(ValueError, match=message):
        built(**options).initialize_prior(counts)


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


def test_encode_gives_states_and_their_precision():
    state, log_precision = built().encode(ITEMS)
    assert tuple(state.shape) == tuple(log_precision.shape) == (2, 6, DIM)
    state, log_precision = built(precision="token").encode(ITEMS)
    assert tuple(log_precision.shape) == (2, 6, 1)
    state, log_precision = built(bayesian=False).encode(ITEMS)
    assert tuple(state.shape) == (2, 6, DIM) and log_precision is None


def test_works_as_a_layer_of_a_functional_model():
    model = built()
    items = keras.Input((None,), dtype="int32")
    around = keras.Model(items, model(items))
    np.testing.assert_allclose(
        numpy(around(ITEMS)), numpy(model(ITEMS)), atol=1e-6
    )


def test_items_beyond_max_length_raise():
    with pytest.raises(ValueError, match=r"Received: items of shape \(1, 7\)"):
        built()(np.ones((1, 7), "int32"))


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_layers", 0),
        ("num_heads", 0),
        ("feed_forward_dim", 0),
        ("form", "heavy"),
        ("prior", "user"),
        ("precision", "head"),
        ("key_precision", "all"),
        ("strength", -1.0),
    ],
)
def test_wrong_arguments_raise(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        SASRec(**SIZES, **{name: value})


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
