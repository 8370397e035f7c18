import numpy as np
import pytest

from keras_bft.diagnostics import plot_reliability
from keras_bft.diagnostics import plot_risk_coverage
from keras_bft.evaluation import reliability_curve
from keras_bft.evaluation import risk_coverage

pytest.importorskip("matplotlib").use("agg")

CONFIDENCE = np.array([0.1, 0.1, 0.3, 0.3])
HITS = np.array([False, False, True, False])


def test_reliability_has_its_bins_and_a_diagonal():
    curve = reliability_curve(CONFIDENCE, HITS, 10)
    axes = plot_reliability({"a": curve, "b": curve})
    container = axes.containers[0]
    line = np.array(container.lines[0].get_data())
    np.testing.assert_allclose(line, [[0.1, 0.3], [0, 0.5]])
    [segments] = container.lines[2]
    low, high = segments.get_segments()[1][:, 1]
    assert high - low == pytest.approx(2 * np.sqrt(0.25 / 2))
    diagonal = np.array(axes.get_lines()[-1].get_data())
    np.testing.assert_array_equal(diagonal[0], diagonal[1])
    # All that was drawn is inside, and as little else as that allows.
    assert 0.5 + np.sqrt(0.25 / 2) < axes.get_ylim()[1] < 0.95
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_legend_handles_labels()[1] == ["a", "b"]
    axes.figure.savefig("/dev/null", format="png")


def test_risk_coverage_with_its_area():
    curve = risk_coverage(CONFIDENCE, HITS)
    axes = plot_risk_coverage({"BFT": curve})
    [line] = axes.get_lines()
    assert line.get_label() == "BFT, area 0.604"
    np.testing.assert_allclose(line.get_xdata(), [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.5, 2 / 3, 0.75])
    # What two in a hundred decide does not set the axis.
    many = np.arange(500.0)
    few = risk_coverage(many, (many < 250) | (many == 499))
    low, high = plot_risk_coverage({"BFT": few}).get_ylim()
    assert few.risk[0] == 0 and 0.4 < low < 0.5 < high <= 1.02
    assert plot_risk_coverage({"again": curve}, axes) is axes
