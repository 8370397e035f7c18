import numpy as np
import pytest

from keras_bft.diagnostics import plot_attention_sinks
from keras_bft.diagnostics import plot_context_curves
from keras_bft.diagnostics import plot_roc
from keras_bft.diagnostics import roc_curve
from keras_bft.diagnostics.context_length import ContextCurve

pytest.importorskip("matplotlib").use("agg")


def lines(axes):
    return {
        line.get_label(): np.array(line.get_data())
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def test_sinks_by_layer():
    sinks = {"a/attention": np.array([0.2, 0.6]), "b": np.array([0.5, 0.7])}
    axes = plot_attention_sinks({"before": sinks, "after": sinks})
    for line in lines(axes).values():
        np.testing.assert_allclose(line, [[0, 1], [0.4, 0.6]])
    assert "first token" in axes.get_ylabel() and axes.get_xlabel() == "layer"
    colors = {line.get_color() for line in axes.get_lines()}
    assert len(colors) == 2
    axes.figure.savefig("/dev/null", format="png")


def test_curves_and_their_axes():
    curve = ContextCurve(*np.array([[1, 2], [0.3, 0.5], [0.1, 0.1], [4, 8]]))
    axes = plot_context_curves({"layer 0": curve}, "gain K")
    np.testing.assert_allclose(lines(axes)["layer 0"], [[1, 2], [0.3, 0.5]])
    assert axes.get_xscale() == "log" and axes.get_ylabel() == "gain K"
    # Again on the same axes.
    assert plot_context_curves({"layer 1": curve}, "gain K", axes) is axes
    assert len(lines(axes)) == 2


def test_roc_with_its_area():
    curve = roc_curve([3.0, 2.0, 1.0], [True, False, True])
    [(label, line)] = lines(plot_roc({"BFT": curve})).items()
    assert label == "BFT, area 0.500"
    np.testing.assert_allclose(line, [[0, 0, 1, 1], [0, 0.5, 0.5, 1]])
