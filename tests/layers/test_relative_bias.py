import numpy as np
import pytest

from keras_bft.layers.relative_bias import RelativeBias
from keras_bft.layers.relative_bias import time_bucket
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import numpy

POSITION = np.array([[1, 2, 3, 4], [0, 1, 1, 2]], "int32")


def built(causal=True, max_length=3, num_time_buckets=30):
    layer = RelativeBias(2, max_length, num_time_buckets, causal)
    layer.build(POSITION.shape, POSITION.shape)
    for table in layer.weights:
        # The value is the row, and for the second head minus the row.
        row = np.arange(table.shape[0], dtype="float32")
        table.assign(np.stack([row, -row], axis=-1))
    return layer


def test_config():
    check_config(
        RelativeBias,
        num_heads=2,
        max_length=7,
        num_time_buckets=5,
        causal=False,
    )


@pytest.mark.parametrize("timestamps", [[], [POSITION]])
def test_output_spec(timestamps):
    # The bias is float32 in every policy, as its tables are.
    check_output_spec(
        lambda: RelativeBias(2, 3, 8, dtype="float32"),
        [POSITION, *timestamps],
    )


def test_buckets_by_hand():
    # exp(0.301 k) is 1, 1.35, 1.83, 2.47, 3.33, ..., 50.0 (k = 13), 67.5.
    interval = [0, 1, -1, 2, 3, -3, 4, 50, 60, -67, 68, 86400, 2**31 - 1]
    bucket = [0, 0, 0, 2, 3, 3, 4, 12, 13, 13, 14, 37, 71]
    for dtype in ("int32", "float32"):
        actual = numpy(time_bucket(np.array(interval, dtype), 128))
        np.testing.assert_array_equal(actual, bucket)
    clipped = numpy(time_bucket(np.array(interval), 13))
    np.testing.assert_array_equal(clipped, np.minimum(bucket, 13))


@pytest.mark.parametrize("causal", [True, False])
def test_rows_of_the_table_are_distances(causal):
    bias = numpy(built(causal)(POSITION))
    distance = POSITION[:, :, None] - POSITION[:, None, :]
    low = 0 if causal else -2
    row = np.clip(distance, low, 2) - low
    np.testing.assert_array_equal(bias[:, 0], row)
    np.testing.assert_array_equal(bias[:, 1], -row)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_seconds_since_1970_lose_nothing(dtype):
    steps = np.array([[0, 1, 3, 63], [0, 0, 86400, 86401]])
    timestamps = (1_700_000_000 + steps).astype(dtype)
    layer = built()
    times = numpy(layer(POSITION, timestamps)) - numpy(layer(POSITION))
    expected = [[0, 0, 3, 13], [0, 0, 30, 30]]
    np.testing.assert_array_equal(times[:, 0, :, 0], expected)
    np.testing.assert_array_equal(times[:, 1, :, 0], -np.array(expected))
    np.testing.assert_array_equal(times, np.swapaxes(times, 2, 3))
    # 60 seconds from the third to the fourth, and one.
    np.testing.assert_array_equal(times[:, 0, 3, 2], [13, 0])


def test_no_buckets_ignore_timestamps():
    layer = built(num_time_buckets=0)
    assert layer.time_table is None
    np.testing.assert_array_equal(
        numpy(layer(POSITION, POSITION)), numpy(layer(POSITION))
    )


def test_a_layer_built_without_timestamps_takes_none():
    layer = RelativeBias(2, 3)
    layer(POSITION)
    assert len(layer.weights) == 1
    with pytest.raises(ValueError, match="built without.*Received: timestamps"):
        layer(POSITION, POSITION)


@pytest.mark.parametrize(
    "name, value",
    [("num_heads", 0), ("max_length", -1), ("num_time_buckets", -1)],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"num_heads": 2, "max_length": 3, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        RelativeBias(**arguments)
