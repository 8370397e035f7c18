"""What the layers report, and to whom."""

import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from keras_bft.layers import _attention
from keras_bft.layers import bft_attention
from keras_bft.layers._trace import is_heard
from keras_bft.layers._trace import listening
from keras_bft.layers._trace import report
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

B, T, D, H = 2, 4, 8, 2


def inputs(width=D):
    rng = np.random.default_rng(0)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def built(**options):
    layer = BFTLayer(H, 6, **options)
    layer.build((B, T, D), (B, T, D))
    randomize(layer)
    return layer


def test_reports_reach_the_innermost_listener():
    report("before", value=0)
    with listening() as outer:
        report("first", value=1)
        with listening() as inner:
            report("second", value=2, other=3)
        report("third")
    report("after", value=4)
    assert outer == [("first", {"value": 1}), ("third", {})]
    assert inner == [("second", {"value": 2, "other": 3})]


def test_only_what_is_wanted_is_heard():
    assert not is_heard() and not is_heard("gain")
    with listening() as every:
        assert is_heard() and is_heard("gain")
        with listening({"gain", "gate"}) as some:
            assert is_heard() and is_heard("kriging_weights", "gain")
            assert not is_heard("kriging_weights", "update")
            report("first", gain=1, update=2)
            report("second", update=2)
    assert some == [("first", {"gain": 1})] and every == []


@pytest.mark.parametrize("attention", ["auto", "blockwise"])
def test_attention_weights_are_not_held_if_unwanted(attention, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("All weights are held.")

    monkeypatch.setattr(_attention, "LONGEST_DENSE", 0)
    monkeypatch.setattr(bft_attention, "kriging_weights", refuse)
    state, log_precision = inputs(D)
    layer = built(attention=attention)
    with listening({"gain"}) as records:
        layer(state, log_precision)
    assert [list(values) for _, values in records] == [["gain"]]
    with pytest.raises(AssertionError), listening({"kriging_weights"}):
        layer(state, log_precision)


def test_nothing_is_kept_for_gradients():
    state, log_precision = inputs(D)
    with listening() as records:
        outputs = built()(state, log_precision)
    tensors = [x for _, values in records for x in values.values()]
    assert len(tensors) > 5
    for x in [*outputs, *tensors]:
        assert not getattr(x, "requires_grad", False) or x.is_leaf


def test_nobody_listens_after_an_error():
    with pytest.raises(KeyError), listening() as records:
        raise KeyError
    report("after", value=1)
    assert records == []


@pytest.mark.parametrize(
    "options, width",
    [({"form": "full"}, D), ({"precision": "token"}, 1)],
    ids=["channel", "token"],
)
def test_a_step_reports_its_statistics(options, width):
    state, log_precision = inputs(width)
    # The strength of the call is the layer's weight, not the argument.
    layer = built(strength=0.9, **options)
    layer.strength.assign(0.4)
    expected = arrays(layer(state, log_precision))
    with listening() as records:
        outputs = arrays(layer(state, log_precision))
    # Weights that are reported are computed all at once.
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert [part for part, _ in records] == [
        layer.attention,
        layer.residual,
        layer.feed_forward,
    ]
    observation, update, prediction = (
        {name: numpy(value) for name, value in values.items()}
        for _, values in records
    )

    innovation, observed = arrays(
        layer.attention(state, log_precision, strength=layer.strength)
    )
    weights = observation.pop("kriging_weights")
    assert weights.shape == (B, H, T, T)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    size = observation.pop("effective_sample_size")
    assert size.shape == (B, T, H, 1)
    np.testing.assert_allclose(
        size[..., 0], 1 / (weights**2).sum(-1).transpose(0, 2, 1), rtol=1e-5
    )
    np.testing.assert_allclose(
        observation.pop("observation_log_precision"), observed, rtol=1e-5
    )
    assert observation == {}

    gain = update.pop("gain")
    ratio = 0.4 * np.exp(log_precision - observed)
    np.testing.assert_allclose(gain, 1 / (1 + ratio), rtol=1e-5)
    assert gain.shape == (B, T, width)
    np.testing.assert_array_equal(
        update.pop("prior_log_precision"), log_precision
    )
    posterior = update.pop("log_precision")
    np.testing.assert_allclose(
        posterior,
        np.logaddexp(log_precision + np.log(0.4), observed),
        atol=1e-5,
    )
    assert update == {}

    np.testing.assert_array_equal(prediction.pop("log_precision"), outputs[1])
    np.testing.assert_array_equal(
        prediction.pop("log_process_noise"),
        numpy(layer.feed_forward.log_process_noise),
    )
    change = prediction.pop("update")
    assert prediction == {}
    after = state + gain * innovation
    predicted = layer.feed_forward(
        after.astype("float32"), posterior.astype("float32")
    )
    np.testing.assert_allclose(numpy(predicted[0]), outputs[0], atol=1e-5)
    np.testing.assert_allclose(after + change, outputs[0], atol=1e-5)


def test_without_a_gain_a_gain_of_one_is_reported():
    with listening() as records:
        built(kalman_gain=False, precision="token")(*inputs(1))
    gain = numpy(records[1][1]["gain"])
    np.testing.assert_array_equal(gain, np.ones((B, T, 1)))


def test_attention_alone_reports_its_weights_and_no_observation():
    state, _ = inputs()
    layer = built()
    with listening() as records:
        layer.attention(state)
    ((_, values),) = records
    assert set(values) == {"kriging_weights"}


def test_the_standard_layer_reports_its_weights_alone():
    state, _ = inputs()
    layer = built(bayesian=False)
    with listening() as records:
        layer(state)
    ((reporter, values),) = records
    assert reporter is layer.attention
    assert set(values) == {"attention_weights"}
