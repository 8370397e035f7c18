import numpy as np
import pytest

from keras_bft.data.timestamps import flatten_timestamps
from keras_bft.data.timestamps import relative_timestamps


def test_times_are_relative_to_the_first():
    start = 1_700_000_000
    times = np.array([start, start + 5, start + 86_400])
    relative = relative_timestamps(times)
    assert relative.tolist() == [0, 5, 86_400] and relative.dtype == "int32"
    unsigned = np.array([7, 5], "uint64")
    assert relative_timestamps(unsigned).tolist() == [0, -2]
    assert relative_timestamps(np.array([], "int64")).tolist() == []


def test_sequences_are_joined():
    joined = flatten_timestamps([[10, 12], [], np.array([99])], [2, 0, 1])
    assert joined.tolist() == [0, 2, 0] and joined.dtype == "int32"


def test_fractions_of_a_second_are_dropped():
    joined = flatten_timestamps([[-0.5, 1.75, 2.0], [7.5]], [3, 1])
    assert joined.tolist() == [0, 2, 3, 0] and joined.dtype == "int32"


@pytest.mark.parametrize(
    "timestamps, message",
    [
        ([[1, 2]], "1 sequences for 2 users"),
        ([[1, 2], [1]], r"timestamps\[0\] of shape \(2,\)"),
        ([["1", "2", "3"], [1]], r"timestamps\[0\] .* dtype <U1"),
        ([[1.0, np.nan, 3.0], [1]], "finite.*Received: nan"),
        ([[1.0, 2.0, 1e19], [1]], "within int64.*Received: 1e"),
        ([[1, 2, 3_000_000_000], [1]], "in seconds.*2999999999 apart"),
        ([[2**63 - 1, -(2**63), 0], [1]], "18446744073709551615 apart"),
    ],
)
def test_times_that_do_not_fit_raise(timestamps, message):
    with pytest.raises(ValueError, match=message):
        flatten_timestamps(timestamps, [3, 1])
