"""Retrieval from wrapped towers, against NumPy, and models to serve."""

import unittest

import keras
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

from keras_bft.integrations.tfrs import Keras3Layer
from tests.integrations.scenarios.checks import FOLDER
from tests.integrations.scenarios.two_towers import NUM_ITEMS
from tests.integrations.scenarios.two_towers import TwoTowers
from tests.integrations.scenarios.two_towers import clicks
from tests.integrations.scenarios.two_towers import dataset
from tests.integrations.scenarios.two_towers import new_model

top_k = tfrs.layers.factorized_top_k
HISTORIES = clicks(6)[0]
ITEMS = np.arange(1, NUM_ITEMS + 1, dtype="int32")


def numpy_top_k(model, k, items=ITEMS, excluded=None):
    """Scores and ids, best first, by sorting all scores."""
    queries = model.query_tower(HISTORIES).numpy()
    scores = queries @ model.item_tower(items).numpy().T
    if excluded is not None:
        seen = (items[None, None] == excluded[:, :, None]).any(axis=1)
        scores = np.where(seen, -np.inf, scores)
    order = np.argsort(-scores, axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), items[order]


def candidates(model, items=ITEMS):
    """Ids and embeddings in batches, the last one smaller."""
    return (
        tf.data.Dataset.from_tensor_slices(items)
        .batch(5)
        .map(lambda ids: (ids, model.item_tower(ids)))
    )


def expect_same(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[1], expected[1])


def trained():
    model = new_model(metrics=False)
    model.compile(tf.keras.optimizers.Adam(0.03))
    model.fit(dataset(), epochs=2, verbose=0)
    return model


MODEL = trained()


def check_brute_force():
    index = top_k.BruteForce(MODEL.query_tower, k=5)
    index.index_from_dataset(candidates(MODEL))
    expect_same(index(HISTORIES), numpy_top_k(MODEL, 5))
    found = index(HISTORIES, k=NUM_ITEMS)
    assert 0 not in found[1].numpy()


def check_streaming():
    index = top_k.Streaming(MODEL.query_tower, k=5)
    index.index_from_dataset(candidates(MODEL))
    expect_same(index(HISTORIES), numpy_top_k(MODEL, 5))
    # The towers may go on training: candidates are computed at each query.
    weights = MODEL.get_weights()
    MODEL.set_weights([1.5 * weight for weight in weights])
    expect_same(index(HISTORIES), numpy_top_k(MODEL, 5))
    MODEL.set_weights(weights)


class Quantized(top_k.BruteForce):
    """Searches as ScaNN does: coarse scores, then the best ones exactly."""

    def call(self, queries, k=None):
        k = self._k if k is None else k
        queries = self.query_model(queries) if self.query_model else queries
        scale = tf.reduce_max(tf.abs(self._candidates)) / 7
        coarse = tf.round(self._candidates / scale) * scale
        size = min(2 * k, self._candidates.shape[0])
        scores = tf.matmul(queries, coarse, transpose_b=True)
        _, rows = tf.math.top_k(scores, size)
        exact = tf.einsum(
            "qd,qcd->qc", queries, tf.gather(self._candidates, rows)
        )
        scores, best = tf.math.top_k(exact, k)
        rows = tf.gather(rows, best, batch_dims=1)
        return scores, tf.gather(self._identifiers, rows)

    def is_exact(self):
        return False


def check_an_approximate_index_as_scann_is():
    index = Quantized(MODEL.query_tower, k=3)
    index.index_from_dataset(candidates(MODEL))
    expect_same(index(HISTORIES), numpy_top_k(MODEL, 3))
    metric = tfrs.metrics.FactorizedTopK(
        Quantized(k=3).index_from_dataset(candidates(MODEL)), ks=(1, 3)
    )
    targets = numpy_top_k(MODEL, 3)[1][:, 2]
    metric.update_state(
        MODEL.query_tower(HISTORIES),
        MODEL.item_tower(targets),
        true_candidate_ids=tf.constant(targets),
    )
    assert [float(result) for result in metric.result()] == [0.0, 1.0]


def check_scann():
    if not top_k._HAVE_SCANN:
        raise unittest.SkipTest("scann is not installed")
    index = top_k.ScaNN(
        MODEL.query_tower,
        k=5,
        num_leaves=2,
        num_leaves_to_search=2,
        num_reordering_candidates=NUM_ITEMS,
    )
    index.index_from_dataset(candidates(MODEL))
    expect_same(index(HISTORIES), numpy_top_k(MODEL, 5))


def check_exclusions_with_padded_histories():
    for index in (
        top_k.BruteForce(MODEL.query_tower),
        top_k.Streaming(MODEL.query_tower),
    ):
        index.index_from_dataset(candidates(MODEL))
        assert np.any(HISTORIES == 0)
        found = index.query_with_exclusions(
            tf.constant(HISTORIES), tf.constant(HISTORIES), k=4
        )
        expect_same(found, numpy_top_k(MODEL, 4, excluded=HISTORIES))


def check_new_candidates_after_indexing_again():
    index = top_k.BruteForce(MODEL.query_tower, k=3)
    index.index_from_dataset(candidates(MODEL, ITEMS[:6]))
    for items in (ITEMS[:6], ITEMS, ITEMS[3:]):
        index.index_from_dataset(candidates(MODEL, items))
        expect_same(index(HISTORIES), numpy_top_k(MODEL, 3, items))
        found = index.query_with_exclusions(
            tf.constant(HISTORIES), tf.constant(HISTORIES), k=2
        )
        expect_same(found, numpy_top_k(MODEL, 2, items, HISTORIES))


def check_a_brute_force_index_is_saved():
    index = top_k.BruteForce(MODEL.query_tower, k=5)
    names = tf.constant([f"item-{item}" for item in ITEMS])
    index.index(MODEL.item_tower(ITEMS), names)
    queries = tf.constant(HISTORIES)
    scores, ids = index(queries)
    _, left = index.query_with_exclusions(queries, names[:3][None], k=2)
    tf.saved_model.save(index, str(FOLDER / "index"))
    np.savez(
        FOLDER / "index.npz",
        histories=HISTORIES,
        excluded=names[:3][None].numpy().astype(str),
        scores=scores,
        ids=ids.numpy().astype(str),
        left=left.numpy().astype(str),
    )


def check_an_index_of_several_features_is_saved():
    history = keras.Input((4,), dtype="int32", name="history")
    price = keras.Input((), name="price")
    pooled = keras.layers.GlobalAveragePooling1D()(
        keras.layers.Embedding(NUM_ITEMS + 1, 8)(history)
    )
    scaled = keras.layers.Rescaling(2.0)(price)[:, None]
    query = Keras3Layer(
        keras.Model(
            {"history": history, "price": price},
            keras.layers.Concatenate()([pooled, scaled]),
        )
    )
    index = top_k.BruteForce(query, k=3)
    items = np.random.default_rng(0).normal(size=(NUM_ITEMS, 9))
    index.index(tf.constant(items, "float32"))
    features = {
        "history": tf.constant(HISTORIES),
        "price": tf.linspace(-3.0, 3.0, len(HISTORIES)),
    }
    expected = index(features)
    tf.saved_model.save(index, str(FOLDER / "features"))
    served = tf.saved_model.load(str(FOLDER / "features"))
    for rows in (slice(None), slice(1)):
        found = served({name: x[rows] for name, x in features.items()})
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y[rows], rtol=1e-5)


class Scores(TwoTowers):
    """Calls both towers."""

    def call(self, features):
        query = self.query_tower(features["history"])
        return tf.reduce_sum(query * self.item_tower(features["item"]), axis=1)


def check_a_tied_table_stays_tied_in_a_saved_model():
    table = keras.layers.Embedding(NUM_ITEMS + 1, 8)
    pool = keras.layers.GlobalAveragePooling1D()
    query = keras.Sequential([keras.Input((4,), dtype="int32"), table, pool])
    item = keras.Sequential([keras.Input((), dtype="int32"), table])
    model = Scores(query, item, metrics=False)
    features = {"history": tf.constant(HISTORIES), "item": tf.ones(6, "int32")}
    scores = model(features)
    model.save(str(FOLDER / "tied"))
    revived = tf.keras.models.load_model(str(FOLDER / "tied"))
    np.testing.assert_allclose(revived(features), scores, rtol=1e-6)
    (variable,) = revived.query_tower.variables
    assert revived.item_tower.variables[0] is variable
    variable.assign(2 * variable)
    np.testing.assert_allclose(revived(features), 4 * scores, rtol=1e-6)
