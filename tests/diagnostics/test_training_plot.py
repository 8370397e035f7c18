import keras
import numpy as np
import pytest

from keras_bft.diagnostics import plot_training
from tests.diagnostics.test_gain_plots import close_figures as close_figures
from tests.diagnostics.test_plots import lines

pytest.importorskip("matplotlib").use("agg")

COLUMNS = {
    "loss": [3.0, 2.0],
    "val_loss": [3.5, 2.5],
    "val_ndcg@10": [0.1, 0.2],
    "gain/block_0": [0.5, 0.4],
    "gain/block_1": [0.9, 0.8],
    "log_precision/block_0": [1.0, 2.0],
}


def test_losses_and_gains_of_a_history():
    history = keras.callbacks.History()
    history.history = COLUMNS
    top, below = plot_training(history)
    assert set(lines(top)) == {"loss", "val_loss"}
    np.testing.assert_array_equal(lines(top)["val_loss"], [[1, 2], [3.5, 2.5]])
    assert set(lines(below)) == {"block_0", "block_1"}
    np.testing.assert_array_equal(lines(below)["block_1"], [[1, 2], [0.9, 0.8]])
    assert below.get_xlabel() == "epoch" and below.get_ylim() == (0, 1)
    assert plot_training(COLUMNS, ["val_ndcg@10"], [top, below])[0] is top
    assert "val_ndcg@10" in lines(top)
    top.figure.savefig("/dev/null", format="png")


def test_rows_of_a_continued_training_without_gains():
    rows = [
        {"epoch": 4, "loss": 3.0},
        {"epoch": 5, "loss": 2.0, "val_loss": 1.0},
    ]
    [axes] = plot_training(rows)
    np.testing.assert_array_equal(lines(axes)["loss"], [[4, 5], [3.0, 2.0]])
    np.testing.assert_array_equal(
        lines(axes)["val_loss"], [[4, 5], [np.nan, 1.0]]
    )


@pytest.mark.parametrize(
    "history, losses",
    [({"gain/a": [0.5]}, None), ({"loss": []}, None), (COLUMNS, ["mse"])],
)
def test_a_history_without_the_losses_is_refused(history, losses):
    with pytest.raises(ValueError, match="must have an epoch with the names"):
        plot_training(history, losses)
