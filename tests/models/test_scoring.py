"""A catalogue scored in parts gives what it gives as a whole."""

import keras
import numpy as np
import pytest

from keras_bft.models import _scoring
from keras_bft.models._scoring import best_items
from keras_bft.models._scoring import host_array
from keras_bft.models._scoring import score_items
from keras_bft.models._top_k import merge_top_k

NUM_ITEMS, DIM = 23, 3


def case():
    """Whole numbers: sums are exact in any order, and many scores tie."""
    rng = np.random.default_rng(0)
    states = rng.integers(-1, 2, (5, DIM)).astype("float32")
    table = rng.integers(-1, 2, (NUM_ITEMS + 1, DIM)).astype("float32")
    histories = [
        rng.integers(1, NUM_ITEMS + 1, length) for length in (1, 30, 4, 9, 2)
    ]
    # All but two items are seen.
    histories[1] = np.concatenate([np.arange(1, NUM_ITEMS - 1), [5, 5]])
    return states, table, histories


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("k", [1, 4, NUM_ITEMS])
@pytest.mark.parametrize("limits", [(1, 99), (7, 999), (999, 10), (999, 999)])
def test_parts_equal_a_stable_sort_of_all(k, filtered, limits, monkeypatch):
    monkeypatch.setattr(_scoring, "_MAX_ITEMS", limits[0])
    monkeypatch.setattr(_scoring, "_MAX_SCORES", limits[1])
    states, table, histories = case()
    ids, best = best_items(states, table, k, histories if filtered else None)
    assert ids.dtype == "int64" and best.dtype == "float32"
    scores = score_items(states, table)
    assert np.all(scores[:, 0] == -np.inf)
    np.testing.assert_array_equal(scores[:, 1:], (states @ table.T)[:, 1:])
    ties = 0
    for row, history in enumerate(histories):
        if filtered:
            scores[row, history] = -np.inf
        order = np.argsort(-scores[row], kind="stable")
        order = order[scores[row, order] > -np.inf][:k]
        assert ids[row].tolist() == [*order, *[0] * (k - len(order))]
        np.testing.assert_array_equal(
            best[row], [*scores[row, order], *[-np.inf] * (k - len(order))]
        )
        ties += len(order) - len(set(scores[row, order]))
    assert k == 1 or ties > 0


def test_no_users():
    ids, best = best_items(np.zeros((0, DIM), "float32"), case()[1], 2, [])
    assert ids.shape == best.shape == (0, 2)


def test_equal_scores_of_the_first_list_come_first():
    inf = np.inf
    ids, best = merge_top_k(
        np.array([[4, 2], [3, 0]]),
        np.array([[2.0, 1.0], [1.0, -inf]]),
        np.array([[7, 6, 9], [0, 0, 0]]),
        np.array([[3.0, 2.0, 1.0], [-inf] * 3]),
    )
    assert ids.tolist() == [[7, 4], [3, 0]]
    assert best.tolist() == [[3.0, 2.0], [1.0, -inf]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tables_of_all_kinds_are_read(dtype):
    states, table, _ = case()
    variable = keras.Variable(table, dtype=dtype)
    read = host_array(variable)
    np.testing.assert_array_equal(read.astype("float32"), table)
    np.testing.assert_array_equal(
        score_items(states, read), score_items(states, table)
    )
    np.testing.assert_array_equal(
        best_items(states, read, 5)[0], best_items(states, table, 5)[0]
    )
    if dtype == "float32":
        # Not a copy, which takes longer than the scores.
        again = host_array(variable)
        assert again.ctypes.data == read.ctypes.data
        assert not read.flags.owndata
