"""Sums block by block equal those of weights that are all held."""

import keras
import numpy as np
import pytest

from keras_bft.ops import WeightDropout
from keras_bft.ops import blockwise_estimate
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_observation
from keras_bft.ops import kriging_statistics
from keras_bft.ops import kriging_weights
from keras_bft.ops import softmax_moments
from tests.gradients import gradient_function
from tests.ops.arrays import log_precisions
from tests.ops.arrays import normals
from tests.ops.arrays import numpy
from tests.ops.arrays import weighted_sum

B, T, H, HK, C = 2, 11, 4, 2, 3
# Eleven queries in steps of two: four blocks, the first three of two steps.
BLOCK = 2
RATE = 0.4
ops = keras.ops


def make_arrays(num_keys=T):
    rng = np.random.default_rng(0)
    return {
        "query": normals(rng, B, T, H, C),
        "key": normals(rng, B, num_keys, HK, C),
        "value": normals(rng, B, num_keys, HK, C) + 3.0,
        "mean_log_precision": log_precisions(rng, (B, num_keys, HK)),
        "value_log_precision": log_precisions(rng, (B, num_keys, HK)),
        "strength": np.float32(0.7),
    }


def make_mask(kind, num_keys):
    rng = np.random.default_rng(1)
    mask = {
        "padding": np.ones((B, 1, num_keys), bool),
        "pairs": rng.random((B, T, num_keys)) < 0.6,
    }.get(kind)
    if kind == "padding":
        mask[0, 0, :4] = False
        mask[1, 0, -3:] = False
    if kind == "pairs":
        mask[1, 5] = False
    return mask


def make_kept(num_keys):
    kept = np.random.default_rng(2).random((B, HK, T * H // HK, num_keys))
    kept = kept > RATE
    kept[0, 0, 3] = False
    return kept


def by_head(kept):
    """`(B, Hk, T * H / Hk, S)` as `(B, H, T, S)`."""
    kept = kept.reshape(B, HK, T, H // HK, -1)
    return kept.transpose(0, 1, 3, 2, 4).reshape(B, H, T, -1)


def dense(arrays, mask, causal, kept, rate, variance, differentiate):
    """The observation from the weights, which dropout changes here."""
    visible = mask
    if causal:
        visible = np.tri(T, dtype=bool)[None]
        visible = visible if mask is None else visible & mask
    weights = kriging_weights(
        arrays["query"],
        arrays["key"],
        arrays["mean_log_precision"],
        visible,
        strength=arrays["strength"],
    )
    survivors = weights
    if kept is not None:
        survivors = ops.where(by_head(kept), weights, 0.0)
        if rate is None:
            total = ops.sum(survivors, axis=-1, keepdims=True)
            survivors = survivors / ops.where(total > 0, total, 1.0)
            weights = survivors
        else:
            survivors = survivors / (1.0 - rate)
    seen = kriging_statistics(
        weights,
        arrays["value"],
        arrays["value_log_precision"],
        visible,
        variance,
        differentiate,
    )
    return (kriging_estimate(survivors, arrays["value"]), *seen[1:])


@pytest.mark.parametrize(
    ("causal", "mask", "dropout", "variance", "differentiate", "num_keys"),
    [
        (True, "padding", "inverted", "channel", True, T),
        (True, "pairs", "renormalized", "head", False, T),
        (False, "padding", "renormalized", "channel", True, 7),
        (False, "pairs", None, "head", False, 7),
    ],
)
def test_blocks_equal_the_whole(
    causal, mask, dropout, variance, differentiate, num_keys
):
    arrays = make_arrays(num_keys)
    mask = make_mask(mask, num_keys)
    kept = None if dropout is None else make_kept(num_keys)
    rate = RATE if dropout == "inverted" else None
    rng = np.random.default_rng(3)
    width = C if variance == "channel" else 1
    probes = [normals(rng, B, T, H, n) for n in (C, width, 1, 1)]

    def scalar(observed):
        return sum(
            weighted_sum(x, probe)
            for x, probe in zip(observed, probes, strict=True)
        )

    def blockwise(*values):
        dropped = None
        if kept is not None:
            dropped = WeightDropout(ops.convert_to_tensor(kept), rate)
        return scalar(
            kriging_observation(
                **dict(zip(arrays, values, strict=True)),
                mask=mask,
                causal=causal,
                variance=variance,
                differentiate=differentiate,
                dropped=dropped,
                block=BLOCK,
            )
        )

    def whole(*values):
        named = dict(zip(arrays, values, strict=True))
        return scalar(
            dense(named, mask, causal, kept, rate, variance, differentiate)
        )

    value, gradients = gradient_function(blockwise)(*arrays.values())
    expected, wanted = gradient_function(whole)(*arrays.values())
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name, x, y in zip(arrays, gradients, wanted, strict=True):
        scale = max(1.0, np.max(np.abs(y)))
        np.testing.assert_allclose(
            x / scale, y / scale, atol=1e-5, err_msg=name
        )
    assert np.any(wanted[0] != 0.0)


@pytest.mark.parametrize("inverted", [True, False])
def test_the_estimate_alone(inverted):
    arrays = make_arrays()
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    kept = make_kept(T)
    probe = normals(np.random.default_rng(4), B, T, H, C)

    def blockwise(*tensors):
        dropped = None
        if inverted:
            dropped = WeightDropout(ops.convert_to_tensor(kept), RATE)
        return weighted_sum(
            blockwise_estimate(
                *tensors, causal=True, dropped=dropped, block=BLOCK
            ),
            probe,
        )

    def whole(query, key, value):
        weights = kriging_weights(query, key, mask=np.tri(T, dtype=bool)[None])
        if inverted:
            weights = ops.where(by_head(kept), weights, 0.0) / (1.0 - RATE)
        return weighted_sum(kriging_estimate(weights, value), probe)

    results = gradient_function(blockwise)(query, key, value)
    expected = gradient_function(whole)(query, key, value)
    np.testing.assert_allclose(results[0], expected[0], rtol=1e-5)
    for x, y in zip(results[1], expected[1], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("per_head", [False, True])
def test_the_estimate_alone_weighs_keys_and_hides_them(strength, per_head):
    arrays = make_arrays()
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    rng = np.random.default_rng(6)
    shape = key.shape[:3] if per_head else key.shape[:2]
    precision = normals(rng, *shape)
    mask = rng.random((B, T, key.shape[1])) < 0.7
    weights = kriging_weights(query, key, precision, mask, strength=strength)
    expected = numpy(kriging_estimate(weights, value))
    arguments = {"mean_log_precision": precision, "mask": mask, "block": BLOCK}
    result = blockwise_estimate(
        query, key, value, strength=strength, **arguments
    )
    np.testing.assert_allclose(numpy(result), expected, atol=1e-5)
    if strength == 1.0:
        default = blockwise_estimate(query, key, value, **arguments)
        np.testing.assert_array_equal(numpy(default), numpy(result))


def test_half_precision_sums_stay_near():
    arrays = make_arrays()
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    expected = numpy(blockwise_estimate(query, key, value, causal=True))
    half = [ops.cast(x, "bfloat16") for x in (query, key, value)]
    estimate = blockwise_estimate(*half, causal=True, block=BLOCK)
    assert keras.backend.standardize_dtype(estimate.dtype) == "bfloat16"
    np.testing.assert_allclose(
        numpy(ops.cast(estimate, "float32")), expected, atol=5e-2
    )


def test_a_query_that_sees_nothing_sums_to_zero():
    arrays = make_arrays()
    moments = softmax_moments(
        arrays["query"],
        arrays["key"],
        arrays["value"],
        mask=make_mask("pairs", T),
        block=BLOCK,
    )
    for x in moments:
        np.testing.assert_array_equal(numpy(x)[1, 5], 0.0)
    assert np.all(numpy(moments.squared_weights)[0] > 0.0)


def test_bad_arguments_raise():
    arrays = make_arrays()
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    with pytest.raises(ValueError, match=r"multiple of .*shape=.*2, 11, 3, 3"):
        softmax_moments(query[:, :, :3], key, value)
    with pytest.raises(ValueError, match=r"`mask` must .*shape=.*11, 11"):
        softmax_moments(query, key, value, mask=np.ones((T, T), bool))
