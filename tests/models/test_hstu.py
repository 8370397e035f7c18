"""HSTU: its inputs, its layers, its training."""

import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset
from keras_bft.evaluation import rank_targets
from keras_bft.losses import FullSoftmax
from keras_bft.models import HSTU
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.layer_checks import weighted_sum

NUM_ITEMS, MAX_LENGTH, DIM = 9, 6, 8
ITEMS = np.array([[3, 5, 7, 2, 9, 1], [4, 4, 8, 0, 0, 0]], "int32")
TIMES = np.array([[0, 5, 60, 90, 9000, 9001], [0, 7, 7, 0, 0, 0]], "int32")
each_model = pytest.mark.parametrize("bayesian", [False, True])


def built(**options):
    defaults = {"embedding_dim": DIM, "num_layers": 1}
    model = HSTU(NUM_ITEMS, MAX_LENGTH, **{**defaults, **options})
    model.build((None, MAX_LENGTH))
    return model


def test_config():
    model = check_config(
        HSTU,
        num_items=9,
        max_length=6,
        embedding_dim=8,
        num_layers=3,
        num_heads=4,
        head_dim=3,
        num_time_buckets=7,
        dropout=0.25,
        bayesian=False,
        form="light",
        prior="mlp",
        precision="token",
        carry_units=False,
        strength=0.5,
        trainable_strength=True,
        scale_embeddings=False,
        layer_options={"epsilon": 1e-3},
        seed=4,
    )
    layer = model.blocks[1].get_config()
    expected = {
        "max_length": 6,
        "num_time_buckets": 7,
        "head_dim": 3,
        "bayesian": False,
        "form": "light",
        "strength": 0.5,
        "epsilon": 1e-3,
        "initial_log_process_noise": -2.0,
    }
    assert {name: layer[name] for name in expected} == expected


def test_the_model_is_its_layers_between_embeddings_and_norm():
    model = built(num_layers=2, num_time_buckets=4)
    randomize(model)
    items, positions = (
        numpy(layer.embeddings)
        for layer in (model.item_embedding, model.position_embedding)
    )
    place = np.maximum(np.cumsum(ITEMS > 0, axis=1) - 1, 0)
    state = (items[ITEMS] + positions[place]) * DIM**0.5
    log_precision = numpy(model.prior.embeddings)[ITEMS]
    for block in model.blocks:
        state, log_precision = block(
            state.astype("float32") if isinstance(state, np.ndarray) else state,
            log_precision,
            timestamps=TIMES,
            padding_mask=ITEMS > 0,
        )
    expected = numpy(model.final_norm(state)[0])
    np.testing.assert_allclose(
        numpy(model((ITEMS, TIMES))), expected, atol=1e-5
    )


@pytest.mark.parametrize("form", ["light", "full"])
def test_strength_zero_is_plain_hstu(form):
    plain = built(bayesian=False)
    randomize(plain)
    model = built(form=form, strength=0.0)
    named = {w.path.split("/", 1)[1]: w for w in plain.weights}
    shared = []
    for weight in model.weights:
        name = weight.path.split("/", 1)[1]
        if name in named:
            weight.assign(named[name])
            shared.append((named[name], weight))
    assert len(shared) == len(plain.weights)
    np.testing.assert_allclose(
        numpy(model(ITEMS)), numpy(plain(ITEMS)), atol=1e-5
    )

    def gradients(which, variables):
        def loss():
            return weighted_sum(which(ITEMS), ITEMS > 0)

        return variable_gradients(loss, variables)[1]

    pairs = [pair for pair in shared if pair[0].trainable]
    plain_gradients, filter_gradients = (
        gradients(which, list(variables))
        for which, variables in zip(
            (plain, model), zip(*pairs, strict=True), strict=True
        )
    )
    for x, y in zip(plain_gradients, filter_gradients, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-4)


@each_model
@pytest.mark.parametrize("num_time_buckets", [0, 4])
def test_learns_what_comes_next(bayesian, num_time_buckets, tmp_path):
    keras.utils.set_random_seed(0)
    rows = [
        [(start + step) % NUM_ITEMS + 1 for step in range(MAX_LENGTH + 1)]
        for start in range(NUM_ITEMS)
    ]
    times = [np.arange(MAX_LENGTH + 1) * 60] * NUM_ITEMS
    given = {"timestamps": times} if num_time_buckets else {}
    model = built(
        bayesian=bayesian,
        num_time_buckets=num_time_buckets,
        embedding_dim=16,
        dropout=0.0,
        seed=0,
    )
    model.compile(keras.optimizers.Adam(0.02), FullSoftmax())
    data = SequenceDataset(rows, MAX_LENGTH, batch_size=9, **given)
    loss = model.fit(data, epochs=40, verbose=0).history["loss"]
    assert loss[0] > 1.5 and loss[-1] < 0.4
    histories = [[1, 2, 3, 4], [8, 9, 1, 2, 3], [5, 6, 7, 8]]
    if num_time_buckets:
        given = {"timestamps": [np.arange(len(h)) * 60 for h in histories]}
    ids, _ = model.recommend(histories, 1, filter_seen=False, **given)
    assert ids[:, 0].tolist() == [5, 4, 9]
    ranking = rank_targets(
        model, histories, [5, 4, 9], filter_seen=False, verbose=False, **given
    )
    assert ranking.ranks.tolist() == [1, 1, 1]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.score(histories, **given), model.score(histories, **given)
    )


def test_only_intervals_between_timestamps_matter():
    model = built(num_time_buckets=64)
    randomize(model)
    histories = [[3, 5, 7]]
    scores, later, slower = (
        model.score(histories, timestamps=[times])[:, 1:]
        for times in (
            [0, 5, 90],
            [1_700_000_000, 1_700_000_005, 1_700_000_090],
            [0, 5, 90_000],
        )
    )
    np.testing.assert_array_equal(scores, later)
    assert np.max(np.abs(slower - scores)) > 1e-3


def test_timestamps_missing_or_not_expected_raise():
    with_times, without = built(num_time_buckets=4), built()
    with pytest.raises(ValueError, match="Received: items alone"):
        with_times(ITEMS)
    with pytest.raises(ValueError, match="Received: a pair"):
        without((ITEMS, TIMES))
    with pytest.raises(ValueError, match="does not read timestamps"):
        without.recommend([[1]], 1, timestamps=[[0]])
    with pytest.raises(ValueError, match="2 sequences for 1"):
        with_times.score([[1]], timestamps=[[0], [1]])
