import numpy as np
import pytest

from keras_bft.diagnostics import plot_by_count
from keras_bft.diagnostics import plot_by_layer
from keras_bft.diagnostics import plot_by_position
from keras_bft.diagnostics import plot_precision_map
from keras_bft.diagnostics import trace
from keras_bft.models import SASRec
from tests.diagnostics.small_trace import ITEMS
from tests.diagnostics.small_trace import REAL
from tests.diagnostics.small_trace import small_trace
from tests.diagnostics.small_trace import token_means
from tests.diagnostics.test_plots import lines

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_means_by_item_count():
    # Of items 2 to 8; item 4 was never seen.
    counts = np.array([9, 9, 1, 2, 0, 3, 9, 900, 1023, 9])[ITEMS]
    axes = plot_by_count(small_trace(), counts, REAL)
    gain = token_means("block_1/residual/gain")
    group = [ITEMS == 4, ITEMS == 2, (ITEMS == 3) | (ITEMS == 5), ITEMS > 6]
    x, y = lines(axes)["block_1"]
    np.testing.assert_array_equal(x, range(4))
    np.testing.assert_allclose(y, [gain[g].mean() for g in group], rtol=1e-6)
    assert ticks(axes.xaxis) == ["0", "1", "2", "512"]
    assert axes.get_ylabel() == "Kalman gain K" and axes.get_ylim() == (0, 1)
    assert axes.get_legend() is not None
    # Half the height of the band is 1.96 standard errors.
    band = axes.collections[1].get_paths()[0].vertices
    values = gain[group[3]]
    error = 1.96 * values.std() / len(values) ** 0.5
    last = band[band[:, 0] == 3][:, 1]
    np.testing.assert_allclose(np.ptp(last), 2 * error, rtol=1e-4)


def test_another_value_by_position_counted_from_the_first_token():
    traced = small_trace()
    axes = plot_by_position(traced, REAL, value="prior_log_precision")
    prior = token_means("block_0/residual/prior_log_precision")
    means = [*prior[:, :3].mean(axis=0), prior[0, 3]]
    x, y = lines(axes)["block_0"]
    np.testing.assert_array_equal(x, [1, 2, 3, 4])
    np.testing.assert_allclose(y, means, rtol=1e-6)
    assert axes.get_ylabel() == "log-precision before the update"
    left = np.roll(REAL, 2, axis=1)
    x, _ = lines(plot_by_position(traced, left))["block_0"]
    np.testing.assert_array_equal(x, [1, 2, 3, 4])


def test_quantiles_by_layer_and_a_second_model_on_the_same_axes():
    axes = plot_by_layer(small_trace(), REAL, label="one")
    again = plot_by_layer(small_trace(), label="padded", axes=axes)
    assert again is axes and set(lines(axes)) == {"one", "padded"}
    gains = [token_means(f"block_{i}/residual/gain")[REAL] for i in range(2)]
    x, y = lines(axes)["one"]
    np.testing.assert_allclose(y, np.median(gains, axis=1), rtol=1e-6)
    np.testing.assert_array_equal(x, [0, 1])
    assert len({line.get_color() for line in axes.get_lines()}) == 2


def test_many_layers_have_a_colour_bar():
    axes = plot_by_position(small_trace(7), REAL)
    assert len(lines(axes)) == 7 and axes.get_legend() is None
    assert not axes.collections
    [_, bar] = axes.figure.axes
    assert bar.get_ylabel() == "layer" and bar.get_ylim() == (0, 6)
    axes.figure.savefig("/dev/null", format="png")


def test_a_plain_model_has_no_gain():
    model = SASRec(99, max_length=ITEMS.shape[1], bayesian=False)
    traced = trace(model, ITEMS)
    for plot in (plot_by_layer, plot_precision_map):
        with pytest.raises(ValueError, match="`bayesian=True`.*Received"):
            plot(traced)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: plot_by_count(t, ITEMS[0]), "`counts` must be zero or more"),
        (lambda t: plot_by_count(t, -ITEMS), "`counts` must be zero or more"),
        (
            lambda t: plot_by_layer(t, value="gate"),
            "in the trace.*value='gate'",
        ),
        (lambda t: plot_by_layer(t, REAL[0]), "`padding_mask` must have"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(small_trace())
