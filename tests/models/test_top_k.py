import numpy as np
import pytest

from keras_bft.models._top_k import top_k


@pytest.mark.parametrize("k", [1, 3, 7, 9])
def test_equals_a_stable_sort(k):
    rng = np.random.default_rng(k)
    # Few different scores, so that many tie.
    scores = rng.integers(0, 4, size=(20, 9)).astype("float32")
    columns, best = top_k(scores, k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(columns, order)
    np.testing.assert_array_equal(best, np.take_along_axis(scores, order, 1))
    assert columns.dtype == "int64" and best.dtype == "float32"


def test_minus_infinity_is_never_chosen():
    inf = np.inf
    scores = np.array([[-inf, 2.0, -inf, 3.0], [-inf] * 4], "float32")
    columns, best = top_k(scores, 3)
    np.testing.assert_array_equal(columns, [[3, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(best, [[3.0, 2.0, -inf], [-inf] * 3])


def test_no_rows():
    columns, best = top_k(np.zeros((0, 4), "float32"), 2)
    assert columns.shape == best.shape == (0, 2)
