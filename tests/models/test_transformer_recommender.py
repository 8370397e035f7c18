"""What recommenders of Transformer layers share, through SASRec."""

import keras
import numpy as np
import pytest

from keras_bft.models import SASRec
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import copy_weights
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.layer_checks import weighted_sum
from tests.models.small_sasrec import DIM
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import NUM_ITEMS
from tests.models.small_sasrec import SIZES
from tests.models.small_sasrec import built
from tests.models.small_sasrec import each_form


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


@pytest.mark.parametrize("prior", ["item", "mlp"])
@pytest.mark.parametrize("precision", ["channel", "token"])
def test_the_filter_adds_its_precision_parameters_alone(prior, precision):
    plain = built(bayesian=False)
    filtered = built(prior=prior, precision=precision)
    noise = DIM if precision == "channel" else 1
    priors = {"item": NUM_ITEMS + 1, "mlp": (DIM + 1) * 16 + 16 + 1}[prior]
    # Two layers, each with its strength. The last one's process noise would
    # reach no score.
    assert filtered.count_params() - plain.count_params() == (
        priors + noise + 2
    )
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
