"""The backend's own attention against weights and sums."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bft.ops import fused_estimate
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_weights
from tests.gradients import gradient_function
from tests.ops.arrays import normals
from tests.ops.arrays import weighted_sum

B, T, H, HK, C = 2, 5, 4, 2, 3
CAUSAL = np.tri(T, dtype=bool)[None]
PADDED = np.ones((B, 1, T), bool)
PADDED[0, 0, :2] = PADDED[1] = False
PAIRS = np.random.default_rng(1).random((B, T, T)) < 0.5


@pytest.mark.parametrize(
    ("mask", "causal", "whole"),
    [
        (None, False, None),
        (None, True, CAUSAL),
        (PADDED, False, PADDED),
        (PADDED, True, PADDED & CAUSAL),
        (PAIRS, True, PAIRS & CAUSAL),
    ],
    ids=["all", "causal", "padded", "padded, causal", "pairs, causal"],
)
def test_it_is_the_estimate(mask, causal, whole):
    rng = np.random.default_rng(0)
    arrays = [normals(rng, B, T, heads, C) for heads in (H, HK, HK)]
    probe = normals(rng, B, T, H, C)

    def fused(*tensors):
        return weighted_sum(
            fused_estimate(*tensors, mask=mask, causal=causal), probe
        )

    def apart(query, key, value):
        weights = kriging_weights(query, key, mask=whole)
        return weighted_sum(kriging_estimate(weights, value), probe)

    result, gradients = gradient_function(fused)(*arrays)
    expected, wanted = gradient_function(apart)(*arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    for x, y in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_a_query_that_sees_nothing_is_zero():
    rng = np.random.default_rng(0)
    x = normals(rng, B, T, H, C)
    estimate = ops.convert_to_numpy(fused_estimate(x, x, x, mask=PADDED))
    assert np.all(estimate[1] == 0.0) and np.all(estimate[0] != 0.0)


def test_bad_arguments_raise():
    x = keras.ops.ones((B, T, 3, C))
    with pytest.raises(ValueError, match="Received: "):
        fused_estimate(x, x[:, :, :2], x[:, :, :2])
    with pytest.raises(ValueError, match="Received: "):
        fused_estimate(x, x, x, mask=np.ones((B, T), bool))
