import keras
import numpy as np
import pytest

import keras_bft
from keras_bft.diagnostics import trace
from keras_bft.layers import BFTLayer
from keras_bft.layers import KalmanResidual
from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy

ITEMS = np.array([[3, 5, 7, 2, 0, 0], [4, 4, 8, 0, 0, 0]])


def sasrec(**options):
    model = SASRec(
        9, max_length=6, embedding_dim=8, **{"num_layers": 1, **options}
    )
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
    noise = traced["filter/feed_forward/log_process_noise"]
    np.testing.assert_array_equal(
        noise, numpy(layer.feed_forward.log_process_noise)
    )


def test_only_the_values_asked_for_are_kept():
    model = sasrec(num_layers=2)
    traced = trace(model, ITEMS, values={"gain", "log_process_noise"})
    assert set(traced) == {
        "block_0/residual/gain",
        "block_0/feed_forward/log_process_noise",
        "block_1/residual/gain",
    }
    gain = trace(sasrec(form="full"), ITEMS, values={"gain"})
    assert gain.token_means()["block_0", 0]["gain"].shape == (2, 6)


def test_a_table_has_a_row_for_each_token_and_layer():
    pytest.importorskip("pandas")
    model = sasrec(num_layers=2)
    traced = trace(model, ITEMS)
    table = traced.to_dataframe(padding_mask=ITEMS != 0, item=ITEMS)
    assert len(table) == 2 * np.count_nonzero(ITEMS)
    assert table["layer"].unique().tolist() == ["block_0", "block_1"]
    real = ITEMS != 0
    for layer, rows in table.groupby("layer"):
        np.testing.assert_array_equal(rows["item"], ITEMS[real])
        np.testing.assert_array_equal(rows["example"], [0] * 4 + [1] * 3)
        np.testing.assert_array_equal(rows["position"], [0, 1, 2, 3, 0, 1, 2])
        for column, name in {
            "gain": "residual/gain",
            "prior_log_precision": "residual/prior_log_precision",
            "posterior_log_precision": "residual/log_precision",
            "predicted_log_precision": "feed_forward/log_precision",
            "observation_log_precision": "attention/observation_log_precision",
            "effective_sample_size": "attention/effective_sample_size",
        }.items():
            values = traced[f"{layer}/{name}"].astype("float64")
            np.testing.assert_allclose(
                rows[column],
                values.reshape(2, 6, -1).mean(axis=-1)[real],
                rtol=1e-5,
                err_msg=column,
            )
    # The prediction of a layer is the prior of the next.
    first, second = (table[table["layer"] == f"block_{i}"] for i in (0, 1))
    np.testing.assert_allclose(
        second["prior_log_precision"], first["predicted_log_precision"]
    )


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"gain": ITEMS}, "another name than.*Received: gain"),
        ({"item": ITEMS[0]}, r"`item` must have the shape \(2, 6\)"),
        ({"padding_mask": ITEMS[0]}, r"`padding_mask` must have the shape"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, message):
    pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=message):
        trace(sasrec(), ITEMS).to_dataframe(**columns)


def test_a_table_needs_a_layer_that_reports():
    pytest.importorskip("pandas")
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="must have a layer"):
        trace(plain, np.ones((1, 3))).to_dataframe()


def bert4rec():
    model = BERT4Rec(9, max_length=6, embedding_dim=8, num_layers=2)
    model.build((None, 6))
    return model, ITEMS, "block_0"


def llama():
    pytest.importorskip("keras_hub")
    lm = keras_bft.models.BFTLlamaCausalLM(
        keras_bft.models.BFTLlamaBackbone(
            vocabulary_size=9,
            num_layers=1,
            num_query_heads=2,
            hidden_dim=8,
            intermediate_dim=8,
            strength=1.0,
            name="body",
        )
    )
    inputs = {"token_ids": ITEMS, "padding_mask": np.ones_like(ITEMS)}
    return lm, inputs, "body/decoder_layer_0"


@pytest.mark.parametrize("make", [bert4rec, llama])
def test_other_models_have_all_values(make):
    model, inputs, path = make()
    before = numpy(model(inputs))
    traced = trace(model, inputs)
    np.testing.assert_array_equal(numpy(model(inputs)), before)
    # The last layer of a recommender has no process noise.
    assert next(iter(traced.by_layer())) == (path, 0)
    assert set(traced.by_layer()[path, 0]) == {
        "kriging_weights",
        "effective_sample_size",
        "observation_log_precision",
        "gain",
        "prior_log_precision",
        "posterior_log_precision",
        "predicted_log_precision",
        "log_process_noise",
        "update",
    }


def test_the_hstu_layer_reports_its_own_prediction():
    model = HSTU(9, max_length=6, embedding_dim=8, num_layers=2, num_heads=2)
    model.build((None, 6))
    before = numpy(model(ITEMS))
    traced = trace(model, ITEMS)
    np.testing.assert_array_equal(numpy(model(ITEMS)), before)
    noise = numpy(model.blocks[0].log_process_noise)
    posterior = traced["block_0/residual/log_precision"]
    # log((1 + 0)^2 + 1e-6) is left out.
    np.testing.assert_allclose(
        traced["block_0/log_precision"],
        -np.logaddexp(-posterior, noise),
        atol=1e-4,
    )
    weights = traced["block_0/attention/kriging_weights"]
    assert weights.shape == (2, 2, 6, 6) and not np.triu(weights, 1).any()
    size = traced["block_0/attention/effective_sample_size"]
    np.testing.assert_allclose(
        size[0, :4, :, 0],
        (np.abs(weights).sum(-1) ** 2 / (weights**2).sum(-1))[0, :, :4].T,
        rtol=1e-5,
    )
    means = traced.token_means()["block_0", 0]
    np.testing.assert_allclose(
        means["predicted_log_precision"],
        trace(model, ITEMS)["block_1/residual/prior_log_precision"].mean(-1),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        means["log_process_noise"], noise.mean(), rtol=1e-5
    )


def test_hstu_without_filter_reports_its_attention():
    model = HSTU(9, max_length=6, embedding_dim=8, num_layers=1, bayesian=False)
    model.build((None, 6))
    traced = trace(model, ITEMS)
    assert list(traced) == ["block_0/attention/attention_weights"]


def test_a_layer_alone_and_half_precision():
    layer = KalmanResidual(dtype="mixed_bfloat16", name="update")
    state, one = np.zeros((2, 3, 4)), np.zeros((2, 3, 1))
    traced = trace(
        layer,
        state,
        None,
        log_precision=one,
        innovation=state,
        observation_log_precision=one,
    )
    assert traced["update/gain"].dtype == "float32"
    np.testing.assert_array_equal(
        traced.token_means()["update", 0]["gain"], 0.5
    )
