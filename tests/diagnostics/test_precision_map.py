import numpy as np
import pytest

from keras_bft.diagnostics import Trace
from keras_bft.diagnostics import plot_precision_map
from tests.diagnostics.small_trace import REAL
from tests.diagnostics.small_trace import small_trace
from tests.diagnostics.small_trace import token_means
from tests.diagnostics.test_gain_plots import close_figures as close_figures
from tests.diagnostics.test_gain_plots import ticks

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


def test_precision_and_attention_of_a_sequence():
    traced = small_trace()
    top, below = plot_precision_map(traced, 1, ["a", "b", "c"], REAL)
    rows = [
        token_means(f"block_{name}")[1, :3]
        for name in (
            "0/residual/prior_log_precision",
            "0/feed_forward/log_precision",
            "1/feed_forward/log_precision",
        )
    ]
    means = np.mean(rows, axis=1)
    np.testing.assert_allclose(
        top.images[0].get_array(), rows - means[:, None], atol=1e-6
    )
    labels = ("prior", "after block_0", "after block_1")
    assert ticks(top.yaxis) == [
        f"{label}, mean {mean:.2f}"
        for label, mean in zip(labels, means, strict=True)
    ]
    weights = traced["block_1/attention/kriging_weights"][1].mean(axis=0)
    np.testing.assert_allclose(below.images[0].get_array(), weights[:3, :3])
    assert ticks(below.xaxis) == ticks(below.yaxis) == ["a", "b", "c"]
    assert "block_1" in below.get_ylabel() and below.get_xlabel() == "key"

    again = plot_precision_map(
        traced, padding_mask=REAL, layer="block_0", axes=[top, below]
    )
    assert again[0] is top and "block_0" in below.get_ylabel()
    assert ticks(below.xaxis) == ["1", "2", "3", "4"]
    top.figure.savefig("/dev/null", format="png")


def test_a_layer_without_weights_has_its_precision_alone():
    traced = Trace()
    full = small_trace()
    for name, values in full.items():
        if not name.endswith("weights"):
            traced[name] = values
            traced._places[name] = full._places[name]
    [axes] = plot_precision_map(traced, padding_mask=REAL)
    assert axes.get_xlabel() == "token" and len(ticks(axes.xaxis)) == 4


@pytest.mark.parametrize(
    "options, message",
    [
        ({"example": 2}, "`example` must be from 0 to 1. Received: example=2"),
        ({"tokens": ["a"]}, "`tokens` must be 6.*Received: 1 tokens"),
        ({"layer": "block_9"}, "`layer` must be one.*layer='block_9'"),
        ({"axes": [None]}, "`axes` must be 2 here.*Received: 1 axes"),
        ({"padding_mask": REAL[0]}, "`padding_mask` must have the shape"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plot_precision_map(small_trace(), **options)


def test_a_trace_without_precision_is_refused():
    with pytest.raises(ValueError, match="must be of a model with a filter"):
        plot_precision_map(Trace())
