"""Items known by features, those that no training has seen among them."""

import keras
import numpy as np
import pytest

from keras_bft.evaluation import rank_targets
from keras_bft.losses import FullSoftmax
from keras_bft.losses import SampledSoftmax
from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import MAX_LENGTH
from tests.models.small_sasrec import NUM_ITEMS
from tests.models.small_sasrec import SIZES

CATEGORICAL = np.arange(NUM_ITEMS + 1)[:, None] % 4
DENSE = np.random.default_rng(3).normal(size=(NUM_ITEMS + 1, 2))
FEATURES = {"categorical": CATEGORICAL, "dense": DENSE}
NEW = {"categorical": [[1], [3]], "dense": [[0.5, -1.0], [2.0, 0.0]]}
# An item of a group is followed by one of the next.
GROUPS, KNOWN, MORE = 4, 32, 8


def built(kind=SASRec, **options):
    model = kind(**SIZES, **options)
    model.build((None, MAX_LENGTH))
    randomize(model)
    return model


def group(item):
    return (np.asarray(item) - 1) % GROUPS


def train(prior):
    """A model of the known items, and with the new ones."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    groups = rng.integers(GROUPS, size=(256, 1)) + np.arange(9)
    items = 1 + groups % GROUPS + GROUPS * rng.integers(8, size=(256, 9))
    model = SASRec(
        KNOWN,
        max_length=8,
        embedding_dim=16,
        num_layers=1,
        dropout=0.0,
        prior=prior,
        seed=0,
        item_features={
            "categorical": np.append(0, 1 + group(np.arange(1, KNOWN + 1)))[
                :, None
            ],
        },
    )
    model.compile(keras.optimizers.Adam(0.02), SampledSoftmax(40))
    model.fit(items[:, :-1], items[:, 1:], batch_size=32, epochs=12, verbose=0)
    new = 1 + group(np.arange(KNOWN + 1, KNOWN + MORE + 1))
    return model, model.add_items(categorical=new[:, None])


@pytest.fixture(scope="module")
def trained():
    return train("item")


def histories_of(items):
    """Histories that end in one of the items, each group in its turn."""
    return [
        [1 + (group(item) - lag) % GROUPS for lag in (3, 2, 1)] + [item]
        for item in items
    ]


@pytest.mark.parametrize("prior", ["item", "mlp"])
def test_new_items_are_ranked_by_their_features(prior, trained):
    _, model = trained if prior == "item" else train("mlp")
    new = np.arange(KNOWN + 1, KNOWN + MORE + 1)
    for last in (np.arange(9, 17), new):
        histories = histories_of(last)
        # Two of eight new items are of the right group.
        wanted = np.array([new[group(new) == group(i + 1)] for i in last])
        scores = model.score(histories)
        best = new[np.argsort(-scores[:, new], axis=1)[:, :2]]
        # By chance a quarter is.
        assert np.mean(group(best) == group(last + 1)[:, None]) > 0.9
        # And among all 40 items they come before those of other groups.
        ranking = rank_targets(model, histories, wanted[:, 0], verbose=False)
        assert np.mean(ranking.ranks) < 13


def test_known_items_score_as_before(trained):
    before, after = trained
    histories = histories_of([5, 6, 7, 8])
    np.testing.assert_allclose(
        after.score(histories)[:, 1 : KNOWN + 1],
        before.score(histories)[:, 1:],
        atol=1e-5,
    )
    assert after.num_items == KNOWN + MORE
    assert after.num_known_items == before.num_known_items == KNOWN


def test_new_items_have_the_precision_learned_without_ids(trained):
    before, after = trained
    start = -before.initial_log_variance
    learned = numpy(before.prior.embeddings)[0, 0]
    assert np.abs(learned - start) > 1e-3
    position = np.zeros((1, 2), "int32")
    for item in (KNOWN + 1, KNOWN + MORE):
        _, prior = after.embed(np.array([[3, item]], "int32"), position)
        expected = numpy(before.prior.embeddings)[[3, 0]]
        np.testing.assert_allclose(numpy(prior)[0], expected, atol=1e-6)


def test_what_is_saved_is_all_of_it(trained, tmp_path):
    _, model = trained
    histories = histories_of([4, KNOWN + 2])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_allclose(
        loaded.score(histories)[:, 1:], model.score(histories)[:, 1:], atol=1e-6
    )
    # Each reading of a history knows the new items.
    state = model.start([history[:-1] for history in histories])
    state = model.append(state, [history[-1] for history in histories])
    items, scores = model.recommend(state, k=5)
    expected = loaded.recommend(histories, k=5)
    np.testing.assert_array_equal(items, expected[0])
    np.testing.assert_allclose(scores, expected[1], atol=1e-5)


@pytest.mark.parametrize("kind", [HSTU, BERT4Rec])
def test_features_that_say_nothing_change_nothing(kind):
    plain = built(kind, bayesian=False)
    model = built(kind, bayesian=False, item_features=FEATURES)
    encoder = model.item_embedding
    for weight in (encoder.category_embeddings, encoder.dense_kernel):
        weight.assign(np.zeros(weight.shape))
    table = plain.item_embedding.embeddings
    encoder.id_embedding.embeddings.assign(table)
    rest = [w for w in model.weights if "/item_embedding/" not in w.path]
    named = {w.path.split("/", 1)[1]: w for w in plain.weights}
    for weight in rest:
        weight.assign(named[weight.path.split("/", 1)[1]])
    items = ITEMS.copy()
    if kind is BERT4Rec:
        items[0, 2] = model.mask_id
    real = items > 0
    np.testing.assert_allclose(
        numpy(model(items))[real], numpy(plain(items))[real], atol=1e-5
    )
    np.testing.assert_allclose(
        numpy(model.item_table())[1:], numpy(plain.item_table())[1:], atol=1e-6
    )


def test_items_are_added_before_special_ids():
    before = built(BERT4Rec, item_features=FEATURES)
    after = before.add_items(**NEW)
    assert after.num_items == NUM_ITEMS + 2
    assert after.mask_id == before.mask_id + 2
    more, less = ITEMS.copy(), ITEMS.copy()
    less[1, 1], more[1, 1] = before.mask_id, after.mask_id
    np.testing.assert_allclose(
        numpy(after(more)), numpy(before(less)), atol=1e-5
    )
    more[1, 0] = NUM_ITEMS + 2
    assert np.any(numpy(after(more))[1] != numpy(before(less))[1])
    # They can be added again.
    again = after.add_items(**NEW)
    table = numpy(again.item_table())
    np.testing.assert_allclose(table[:-2], numpy(after.item_table()), atol=1e-6)
    np.testing.assert_allclose(table[-2:], table[-4:-2], atol=1e-6)


def test_the_loss_leaves_new_items_out():
    model = built(
        item_features={**FEATURES, "num_new_items": 2, "id_dropout": 0.0}
    )
    targets = np.array([[5, 7, 2, 6, 1, 0], [4, 7, 0, 0, 0, 0]])
    model.compile(keras.optimizers.SGD(0.0))
    states = model(ITEMS)
    expected = FullSoftmax().from_states(
        targets, states, model.item_table()[: NUM_ITEMS - 1]
    )
    loss = model.compute_loss(y=targets, y_pred=states, training=True)
    assert float(numpy(loss)) == pytest.approx(float(numpy(expected)), rel=1e-5)
    targets[0, 0] = NUM_ITEMS - 1
    with pytest.raises(ValueError, match="`y` .*Received: 8"):
        model.fit(ITEMS, targets, verbose=0)


def test_the_prior_of_new_items_starts_at_that_of_no_interaction():
    model = built(item_features={**FEATURES, "num_new_items": 2})
    counts = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 0])
    model.initialize_prior(counts, pseudo_count=0.5)
    prior = numpy(model.prior.embeddings)[:, 0]
    assert prior.shape == (8,)
    expected = np.log(counts[:8] + 0.5)
    np.testing.assert_allclose(np.diff(prior), np.diff(expected), atol=1e-5)
    with pytest.raises(ValueError, match="Received: 3.0 interactions"):
        model.initialize_prior(np.full(10, 1.5))


def test_a_layer_of_ids_can_be_given():
    layer = keras.layers.Embedding(NUM_ITEMS + 1, SIZES["embedding_dim"])
    given = built(item_embedding=layer)
    assert given.item_embedding is layer
    np.testing.assert_array_equal(
        numpy(given.item_table()), numpy(layer.embeddings)
    )
    again = SASRec.from_config(given.get_config())
    assert type(again.item_embedding) is keras.layers.Embedding
    assert again.item_embedding.get_config() == layer.get_config()
    both = built(
        item_features={**FEATURES, "num_new_items": 1},
        item_embedding=keras.layers.Embedding(
            NUM_ITEMS, SIZES["embedding_dim"]
        ),
    )
    assert both.score([[1, 2, 3]]).shape == (1, NUM_ITEMS + 1)
    assert SASRec.from_config(both.get_config()).num_known_items == 8


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"item_features": CATEGORICAL}, TypeError, "type ndarray"),
        ({"item_features": {}}, ValueError, "needs features"),
        (
            {"item_features": {"categorical": CATEGORICAL[:4]}},
            ValueError,
            r"Received: categorical of shape \(4, 1\)",
        ),
        (
            {"item_embedding": keras.layers.Embedding(NUM_ITEMS, 8)},
            ValueError,
            r"\(10, 8\).*Received: \(9, 8\)",
        ),
        (
            {"item_embedding": keras.layers.Dense(8)},
            TypeError,
            "type Dense",
        ),
    ],
)
def test_wrong_arguments_raise(options, error, message):
    with pytest.raises(error, match=message):
        SASRec(**SIZES, **options)


@pytest.mark.parametrize(
    "features, message",
    [
        ({}, "`categorical` .*Received: categorical of shape None"),
        (NEW | {"dense": None}, "`dense` .*of shape None"),
        (NEW | {"dense": [[1.0, 2.0]]}, "Received: 2 and 1"),
        (NEW | {"dense": [[1.0]] * 2}, r"of 2 columns.*shape \(2, 1\)"),
        (NEW | {"categorical": [[4], [0]]}, "Received: 4 for item 10"),
        (NEW | {"dense": [[0.0, np.nan]] * 2}, "nan for item 10"),
    ],
)
def test_wrong_new_items_raise(features, message):
    with pytest.raises(ValueError, match=message):
        built(item_features=FEATURES).add_items(**features)


def test_a_model_without_features_takes_no_new_items():
    with pytest.raises(ValueError, match="Received: item_features=None"):
        built().add_items(categorical=[[1]])
