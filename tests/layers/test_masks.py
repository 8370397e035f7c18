import numpy as np
import pytest

from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import copy_initializer
from keras_bft.layers._masks import first_mask
from keras_bft.layers._masks import visible_keys
from tests.layers.layer_checks import numpy

PADDING = np.array([[1, 1, 0], [1, 0, 0]], bool)
ATTENTION = np.random.default_rng(0).integers(0, 2, (2, 3, 3)).astype(bool)
CAUSAL = np.tril(np.ones((3, 3), bool))


def test_first_mask_is_the_first_that_is_given_as_bool():
    assert first_mask() is None
    assert first_mask(None, None) is None
    first = first_mask(None, PADDING.astype("int32"), np.zeros((2, 3), bool))
    assert numpy(first).dtype == bool
    np.testing.assert_array_equal(numpy(first), PADDING)


def test_no_restriction_gives_no_mask():
    assert visible_keys(None, None, None) is None


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("attended", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_key_is_seen_where_every_mask_allows(padded, attended, causal):
    if not (padded or attended or causal):
        return
    visible = visible_keys(
        PADDING if padded else None,
        ATTENTION.astype("float32") if attended else None,
        3 if causal else None,
    )
    expected = np.ones((2, 3, 3), bool)
    if padded:
        expected &= PADDING[:, None, :]
    if attended:
        expected &= ATTENTION
    if causal:
        expected &= CAUSAL
    np.testing.assert_array_equal(
        np.broadcast_to(numpy(visible), (2, 3, 3)), expected
    )


def test_copies_of_an_unseeded_initializer_draw_other_numbers():
    first, second = (copy_initializer("glorot_uniform") for _ in range(2))
    assert np.any(numpy(first((3, 3))) != numpy(second((3, 3))))


@pytest.mark.parametrize("value", [0, -2, 1.0, True, "3", None])
def test_only_positive_integers_are_positive(value):
    with pytest.raises(ValueError, match="`size` must.*Received: size="):
        check_positive("size", value)
