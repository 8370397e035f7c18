"""What recommenders of filter layers share, through SASRec."""

import functools

import keras
import numpy as np
import pytest

from keras_bft.models import HSTU
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.models.small_sasrec import DIM
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import MAX_LENGTH
from tests.models.small_sasrec import built


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
    *blocks, last = model.blocks
    for block in blocks:
        noise = block.feed_forward.log_process_noise
        np.testing.assert_allclose(numpy(noise), log_variance - 2.0, rtol=1e-6)
    assert blocks and last.feed_forward.log_process_noise is None


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


@pytest.mark.parametrize("options", [{}, {"num_time_buckets": 8}])
def test_counts_may_come_before_the_model_is_built(options):
    new = functools.partial(HSTU if options else SASRec, 9, 4, 16, **options)
    model, expected = new(), new()
    model.initialize_prior(np.arange(10))
    expected.build((None, 4))
    expected.initialize_prior(np.arange(10))
    start = numpy(expected.prior.embeddings)
    np.testing.assert_array_equal(numpy(model.prior.embeddings), start)
    model.score([[1, 2]], timestamps=[[0, 5]] if options else None)
    np.testing.assert_array_equal(numpy(model.prior.embeddings), start)


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


@pytest.mark.parametrize("bayesian", [False, True])
def test_padding_may_stand_right_left_or_nowhere(bayesian):
    model = built(bayesian=bayesian)
    randomize(model)
    expected = numpy(model(np.array([[4, 4, 8]])))[0]
    for row in ([4, 4, 8, 0, 0, 0], [0, 0, 0, 4, 4, 8], [0, 4, 4, 8, 0, 0]):
        items = np.array([row])
        states = numpy(model(items))[items > 0]
        np.testing.assert_allclose(states, expected, atol=1e-5)


def test_the_order_of_the_items_matters():
    model = built()
    randomize(model)
    items = np.array([[1, 2, 3, 0, 0, 0], [2, 1, 3, 0, 0, 0]])
    first, second = numpy(model(items))[:, 2]
    assert np.max(np.abs(first - second)) > 1e-2


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
