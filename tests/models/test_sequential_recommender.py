"""The base class, through a recommender whose scores are known."""

import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset
from keras_bft.losses import BCE
from keras_bft.losses import FullSoftmax
from keras_bft.models import SequentialRecommender

NUM_ITEMS, MAX_LENGTH, DIM = 6, 4, 3


class MeanOfItems(SequentialRecommender):
    """Its state is the mean of the items so far."""

    def build(self, items_shape):
        self.item_embedding.build(items_shape)
        self.built = True

    def call(self, items, training=False):
        real = keras.ops.cast(items > 0, "float32")[..., None]
        total = keras.ops.cumsum(self.item_embedding(items) * real, axis=1)
        return total / keras.ops.maximum(keras.ops.cumsum(real, axis=1), 1.0)


def built(**options):
    model = MeanOfItems(NUM_ITEMS, MAX_LENGTH, DIM, **options)
    model.build((None, MAX_LENGTH))
    rng = np.random.default_rng(0)
    table = rng.normal(size=(NUM_ITEMS + 1, DIM)).astype("float32")
    model.item_embedding.embeddings.assign(table)
    return model, table.astype("float64")


HISTORIES = [[3], [1, 2, 6], (5, 4), np.array([2, 1, 1, 3, 6, 4]), [4, 4]]


def expected_scores(table, histories=HISTORIES):
    """Of the newest items only."""
    states = [table[list(h)[-MAX_LENGTH:]].mean(0) for h in histories]
    return np.stack(states) @ table.T


def test_scores_are_inner_products_with_the_newest_items_read():
    model, table = built()
    scores = model.score(HISTORIES)
    assert scores.dtype == "float32"
    assert scores.shape == (len(HISTORIES), NUM_ITEMS + 1)
    assert np.all(scores[:, 0] == -np.inf)
    np.testing.assert_allclose(
        scores[:, 1:], expected_scores(table)[:, 1:], atol=1e-5
    )


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_scores_do_not_depend_on_the_batch(batch_size):
    model, _ = built()
    scores = model.score(HISTORIES)
    np.testing.assert_allclose(
        model.score(HISTORIES, batch_size=batch_size)[:, 1:],
        scores[:, 1:],
        atol=1e-6,
    )
    for row, history in enumerate(HISTORIES):
        np.testing.assert_allclose(
            model.score([history])[0, 1:], scores[row, 1:], atol=1e-6
        )
    reversed_scores = model.score(HISTORIES[::-1], batch_size=batch_size)
    np.testing.assert_allclose(
        reversed_scores[::-1, 1:], scores[:, 1:], atol=1e-6
    )


@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("batch_size", [2, 256])
def test_recommends_the_best_items(filter_seen, batch_size):
    model, table = built()
    ids, scores = model.recommend(
        HISTORIES, k=3, filter_seen=filter_seen, batch_size=batch_size
    )
    assert ids.shape == scores.shape == (len(HISTORIES), 3)
    assert ids.dtype == "int64" and scores.dtype == "float32"
    for row, history in enumerate(HISTORIES):
        wanted = expected_scores(table)[row]
        seen = {0, *history} if filter_seen else {0}
        order = sorted(
            set(range(NUM_ITEMS + 1)) - seen, key=lambda item: -wanted[item]
        )[:3]
        # Seen items include those too old to be read.
        padded = order + [0] * (3 - len(order))
        assert ids[row].tolist() == padded
        np.testing.assert_allclose(
            scores[row, : len(order)], wanted[order], atol=1e-5
        )
        assert np.all(scores[row, len(order) :] == -np.inf)


def test_equal_scores_come_in_the_order_of_the_ids():
    model, table = built()
    table[[2, 3, 5]] = table[1]
    table[[4, 6]] = -table[1]
    model.item_embedding.embeddings.assign(table)
    ids, scores = model.recommend([[1], [3]], k=6, filter_seen=False)
    assert ids.tolist() == [[1, 2, 3, 5, 4, 6]] * 2
    assert np.all(scores[:, 0] == scores[:, 3])
    assert model.recommend([[3]], k=3)[0].tolist() == [[1, 2, 5]]


def test_when_all_items_are_seen_nothing_is_left():
    model, _ = built()
    ids, scores = model.recommend([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5]], k=2)
    assert ids.tolist() == [[0, 0], [6, 0]]
    assert np.all(scores[0] == -np.inf)
    assert scores[1, 0] > -np.inf and scores[1, 1] == -np.inf


def test_no_histories_give_no_rows():
    model, _ = built()
    assert model.score([]).shape == (0, NUM_ITEMS + 1)
    ids, scores = model.recommend([], k=2)
    assert ids.shape == scores.shape == (0, 2)


@pytest.mark.parametrize("k", [0, -1, NUM_ITEMS + 1, 2.0])
def test_k_out_of_range_raises(k):
    with pytest.raises(ValueError, match=f"Received: k={k}"):
        built()[0].recommend([[1]], k=k)


def test_k_may_be_the_whole_catalogue():
    ids, _ = built()[0].recommend([[1]], k=NUM_ITEMS, filter_seen=False)
    assert sorted(ids[0]) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "history, hint",
    [
        ([], "offer what is popular"),
        (["tea", "milk"], "`keras_bft.data.Interactions.encode` makes them"),
        (np.array(["tea", 3], object), "`keras_bft.data.Interactions.encode`"),
    ],
)
def test_messages_say_what_to_do_with_such_histories(history, hint):
    with pytest.raises(ValueError, match=f"{hint}.*Received: histories.1."):
        built()[0].recommend([[1], history], k=1)


@pytest.mark.parametrize("history", [[], [0], [1, 7], [-1], [1.5], [[1]]])
def test_wrong_histories_raise(history):
    model, _ = built()
    for call in (model.score, lambda h: model.recommend(h, k=1)):
        with pytest.raises(ValueError, match="Received: "):
            call([[1], history])


INPUTS = np.array([[1, 2, 3, 0], [4, 5, 0, 0]], "int32")
TARGETS = np.array([[2, 3, 4, 0], [5, 6, 0, 0]], "int32")


def test_fit_minimises_the_loss_of_real_positions():
    model, table = built()
    model.compile(keras.optimizers.SGD(0.0))
    (loss,) = model.fit(INPUTS, TARGETS, verbose=0).history["loss"]
    losses = []
    for items, targets in zip(INPUTS, TARGETS, strict=True):
        for length in range(1, np.count_nonzero(targets) + 1):
            state = table[items[:length]].mean(0)
            scores = table[1:] @ state
            log_sum = np.log(np.exp(scores).sum())
            losses.append(log_sum - scores[targets[length - 1] - 1])
    assert len(losses) == 5
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    evaluated = model.evaluate(INPUTS, TARGETS, verbose=0)
    assert evaluated == pytest.approx(loss, rel=1e-5)


def test_losses_of_regularizers_are_added():
    model, table = built()
    model.compile(keras.optimizers.SGD(0.0))
    (plain,) = model.fit(INPUTS, TARGETS, verbose=0).history["loss"]
    model, _ = built()
    model.item_embedding.embeddings.regularizer = keras.regularizers.L2(0.5)
    model.compile(keras.optimizers.SGD(0.0))
    (more,) = model.fit(INPUTS, TARGETS, verbose=0).history["loss"]
    assert more - plain == pytest.approx(0.5 * np.sum(table**2), rel=1e-4)


def test_the_default_loss_is_the_full_softmax():
    model, _ = built()
    model.compile()
    assert type(model.loss) is FullSoftmax


def test_a_saved_model_compiles_as_its_next_backend_does():
    model, _ = built()
    assert model.get_compile_config() == {}
    model.compile()
    assert model.get_compile_config()["jit_compile"] == "auto"
    model.compile(jit_compile=False)
    assert model.get_compile_config()["jit_compile"] is False


@pytest.mark.parametrize("loss", ["mse", keras.losses.MeanSquaredError()])
def test_other_losses_raise(loss):
    with pytest.raises(TypeError, match="Received: loss="):
        built()[0].compile("adam", loss=loss)


@pytest.mark.parametrize("name", ["metrics", "weighted_metrics"])
def test_metrics_of_states_raise(name):
    model, _ = built()
    with pytest.raises(ValueError, match=f"RankingCallback.*{name}=.'accuracy"):
        model.compile("adam", **{name: ["accuracy"]})
    model.compile("adam", **{name: []})


@pytest.mark.parametrize(
    "histories", [HISTORIES, [np.array([1, 2]), np.array([3, 4, 5])]]
)
def test_histories_as_they_are_raise_before_training(histories):
    model, _ = built()
    model.compile()
    for call in (model.fit, model.evaluate, model.train_on_batch):
        with pytest.raises(ValueError, match=r"SequenceDataset\(histories\)"):
            call(histories)
    data = (histories, np.ones(len(histories), "int64"))
    with pytest.raises(ValueError, match=f"Ranking.*{len(histories)} histor"):
        model.fit(INPUTS, TARGETS, validation_data=data)


def test_longer_batches_than_the_model_reads_raise_before_training():
    model, _ = built()
    model.compile()
    dataset = SequenceDataset([[1, 2, 3, 4, 5, 6]])
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="max_length=4.*of length 5"):
            call(dataset)
    short = SequenceDataset([[1, 2, 3], [4, 5]], batch_size=2)
    model.fit(short, epochs=1, verbose=0)


def test_sample_weights_raise():
    model, _ = built()
    model.compile()
    with pytest.raises(ValueError, match="Received: sample_weight"):
        model.fit(INPUTS, TARGETS, sample_weight=np.ones(2), verbose=0)


@pytest.mark.parametrize("wrong", [NUM_ITEMS + 1, -1, 2.5])
def test_unknown_ids_raise_before_training(wrong):
    model, _ = built()
    model.compile()
    for position, name in enumerate(("x", "y")):
        arrays = [INPUTS * 1, TARGETS * 1]
        if isinstance(wrong, float):
            arrays[position] = arrays[position] * wrong
        else:
            arrays[position][0, 0] = wrong
        for call in (model.fit, model.evaluate):
            with pytest.raises(ValueError, match=f"`{name}` .*Received: "):
                call(*arrays, verbose=0)
        # JAX would not raise, and compute NaN.
        for call in (model.train_on_batch, model.test_on_batch):
            with pytest.raises(ValueError, match=f"`{name}` .*Received: "):
                call(*arrays)
        with pytest.raises(ValueError, match=f"`{name}` .*Received: "):
            model.fit(INPUTS, TARGETS, validation_data=arrays, verbose=0)


def test_unknown_ids_of_a_dataset_raise_before_training():
    model, _ = built()
    model.compile()
    dataset = SequenceDataset([[1, 2, 7]], max_length=MAX_LENGTH)
    for call in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="`x` .*Received: 7"):
            call(dataset)
    with pytest.raises(ValueError, match="`x` .*Received: 7"):
        model.fit(INPUTS, TARGETS, validation_data=dataset)


def test_the_seed_decides_the_negatives():
    def loss(seed):
        model, _ = built(seed=seed)
        model.compile(keras.optimizers.SGD(0.0), loss=BCE(num_negatives=2))
        history = model.fit(INPUTS, TARGETS, epochs=3, shuffle=False, verbose=0)
        return history.history["loss"]

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)
    assert len(set(loss(1))) == 3


@pytest.mark.parametrize("name", ["num_items", "max_length", "embedding_dim"])
@pytest.mark.parametrize("value", [0, -1, 2.0, None, True])
def test_wrong_arguments_raise(name, value):
    arguments = {"num_items": 6, "max_length": 4, "embedding_dim": 3}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        MeanOfItems(**{**arguments, name: value})
