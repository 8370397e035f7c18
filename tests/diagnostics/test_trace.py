import keras
import numpy as np

from keras_bft.diagnostics import trace
from keras_bft.layers import BFTLayer
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy

ITEMS = np.array([[3, 5, 7, 2, 0, 0], [4, 4, 8, 0, 0, 0]])


def sasrec(**options):
    model = SASRec(9, max_length=6, embedding_dim=8, num_layers=1, **options)
    model.build((None, 6))
    return model


def test_names_shapes_and_values():
    model = sasrec(precision="token")
    before = numpy(model(ITEMS))
    traced = trace(model, ITEMS)
    np.testing.assert_array_equal(numpy(model(ITEMS)), before)
    gain = traced["block_0/residual/gain"]
    assert gain.shape == (2, 6, 1)
    observed = traced["block_0/attention/observation_log_precision"]
    prior = traced["block_0/residual/prior_log_precision"]
    np.testing.assert_allclose(
        gain, 1.0 / (1.0 + np.exp(prior - observed)), atol=1e-6
    )
    posterior = traced["block_0/residual/log_precision"]
    np.testing.assert_allclose(
        posterior, np.logaddexp(prior, observed), atol=1e-5
    )
    weights = traced["block_0/attention/kriging_weights"]
    assert weights.shape == (2, 2, 6, 6)
    np.testing.assert_allclose(weights[:, :, :3].sum(-1), 1.0, atol=1e-6)
    size = traced["block_0/attention/effective_sample_size"]
    np.testing.assert_allclose(
        size[0, :4, :, 0],
        (1.0 / (weights**2).sum(-1))[0, :, :4].T,
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        traced["block_0/feed_forward/log_precision"],
        numpy(model.encode(ITEMS)[1]),
        atol=1e-6,
    )


def test_models_without_filter_report_their_attention():
    traced = trace(sasrec(bayesian=False), ITEMS)
    assert list(traced) == ["block_0/attention/attention_weights"]
    [weights] = traced.values()
    assert weights.shape == (2, 2, 6, 6)
    np.testing.assert_allclose(weights[:, :, :3].sum(-1), 1.0, atol=1e-6)


def test_functional_models_and_layers_called_twice():
    layer = BFTLayer(2, 8, name="filter")
    state = keras.Input((3, 8))
    log_precision = keras.Input((3, 1))
    model = keras.Model(
        [state, log_precision], layer(*layer(state, log_precision))
    )
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 3, 1))]
    traced = trace(model, inputs)
    first = traced["filter/residual/gain"]
    second = traced["filter/residual/gain:1"]
    assert first.shape == second.shape and np.any(first != second)
    alone = trace(layer, inputs[0])
    assert alone["residual/gain"].shape == (2, 3, 8)
