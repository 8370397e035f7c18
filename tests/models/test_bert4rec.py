"""What BERT4Rec adds to the Transformer that it shares with SASRec."""

import keras
import numpy as np
import pytest

from keras_bft.data import MaskedItemDataset
from keras_bft.data import SequenceDataset
from keras_bft.losses import FullSoftmax
from keras_bft.models import BERT4Rec
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

NUM_ITEMS, MAX_LENGTH, DIM = 9, 6, 8
MASK = NUM_ITEMS + 1
each_model = pytest.mark.parametrize("bayesian", [False, True])


def built(**options):
    defaults = {"embedding_dim": DIM, "num_layers": 1}
    model = BERT4Rec(NUM_ITEMS, MAX_LENGTH, **{**defaults, **options})
    model.build((None, MAX_LENGTH))
    return model


def test_config_round_trip():
    options = {"prior": "mlp", "dropout": 0.1, "layer_options": {"causal": 0}}
    model = built(**options)
    config = model.get_config()
    assert {name: config[name] for name in options} == options
    assert config["num_items"] == NUM_ITEMS
    assert config["max_length"] == MAX_LENGTH
    assert BERT4Rec.from_config(config).get_config() == config


@each_model
def test_every_position_sees_every_other(bayesian):
    model = built(bayesian=bayesian)
    randomize(model)
    items = np.array([[3, 5, MASK, 2]])
    states = numpy(model(items))
    for place in range(4):
        changed = items.copy()
        changed[0, place] = 7
        moved = np.abs(numpy(model(changed)) - states).max(axis=-1)
        assert np.all(moved > 1e-4)


@each_model
def test_scores_are_those_of_a_mask_after_the_newest_items(bayesian):
    model = built(bayesian=bayesian)
    randomize(model)
    histories = [[3, 5], [9, 8, 1, 2, 3, 4, 5, 6]]
    scores = model.score(histories)
    assert scores.shape == (2, NUM_ITEMS + 1)
    table = numpy(model.item_embedding.embeddings)
    assert table.shape == (NUM_ITEMS + 2, DIM)
    for items, row in (([3, 5, MASK], 0), ([2, 3, 4, 5, 6, MASK], 1)):
        state = numpy(model(np.array([items])))[0, -1]
        np.testing.assert_allclose(
            scores[row, 1:], table[1:-1] @ state, atol=1e-5
        )
    ids, _ = model.recommend(histories, k=NUM_ITEMS, filter_seen=False)
    assert sorted(ids[0]) == list(range(1, NUM_ITEMS + 1))


def test_head_is_a_dense_layer_with_gelu():
    model = built(bayesian=False)
    randomize(model)
    items = np.array([[3, MASK, 1]])
    state, _ = model.encode(items)
    normalized = numpy(model.final_norm(state)[0])
    kernel, bias = (numpy(w) for w in model.head.weights)
    expected = keras.ops.gelu(normalized @ kernel + bias, approximate=False)
    np.testing.assert_allclose(numpy(model(items)), expected, atol=1e-5)


@each_model
def test_learns_a_cycle(bayesian, tmp_path):
    keras.utils.set_random_seed(0)
    rows = [
        [(start + step) % NUM_ITEMS + 1 for step in range(length)]
        for start in range(NUM_ITEMS)
        for length in range(3, MAX_LENGTH + 1)
    ]
    model = built(bayesian=bayesian, embedding_dim=32, dropout=0.0, seed=0)
    model.compile(keras.optimizers.Adam(0.01), FullSoftmax())
    data = MaskedItemDataset(
        rows,
        MASK,
        last_rate=0.5,
        batch_size=12,
        max_length=MAX_LENGTH,
        bucket_lengths=[MAX_LENGTH],
    )
    history = model.fit(data, epochs=40, verbose=0).history["loss"]
    assert history[0] > 1.5 and np.mean(history[-10:]) < 0.9
    histories = [[1, 2, 3, 4], [8, 9, 1, 2, 3], [5, 6, 7, 8]]
    ids, _ = model.recommend(histories, k=1, filter_seen=False)
    assert ids[:, 0].tolist() == [5, 4, 9]
    if bayesian:
        # The mask learned a precision of its own.
        prior = numpy(model.prior.embeddings)[:, 0]
        assert abs(prior[MASK] - prior[0]) > 0.05
        assert abs(prior[MASK] - prior[1:MASK].mean()) > 0.05
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.score(histories), model.score(histories)
    )


def test_data_without_masks_raises():
    model = built()
    model.compile()
    with pytest.raises(ValueError, match="SequenceDataset with mask_id=None"):
        model.fit(SequenceDataset([[1, 2, 3]], max_length=MAX_LENGTH))
    wrong = MaskedItemDataset([[1, 2, 3]], 50, max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match="mask_id=10.*mask_id=50"):
        model.fit(wrong)
    with pytest.raises(ValueError, match="`x` .*Received: 11"):
        model.fit(np.array([[MASK, MASK + 1]]), np.array([[1, 2]]))
    with pytest.raises(ValueError, match="`y` .*Received: 10"):
        model.fit(np.array([[MASK, 3]]), np.array([[MASK, 0]]))


def test_no_room_for_the_mask_raises():
    with pytest.raises(ValueError, match="Received: max_length=1"):
        BERT4Rec(NUM_ITEMS, 1)
