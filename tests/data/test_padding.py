import numpy as np
import pytest

from keras_bft.data import pad_sequences


def test_pads_right_and_keeps_the_newest():
    padded = pad_sequences([[1, 2], np.arange(3, 9), [], [7, 8, 9]], length=3)
    expected = [[1, 2, 0], [6, 7, 8], [0, 0, 0], [7, 8, 9]]
    np.testing.assert_array_equal(padded, expected)
    assert padded.dtype == np.int32


def test_no_sequences():
    assert pad_sequences([], length=4).shape == (0, 4)
    assert pad_sequences([[], []], length=2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([[1], [2, 0]], "must lie in 1..2147483647.*from 0 to 2"),
        ([[-4]], "must lie in 1"),
        ([[2**31]], "must lie in 1"),
        ([[1], [1.5]], "position 1 has shape"),
        ([[1], [[2]]], "position 1 has shape"),
        ([3], "position 0 has shape"),
    ],
)
def test_what_is_no_sequence_of_codes_is_refused(sequences, message):
    with pytest.raises(ValueError, match=message):
        pad_sequences(sequences, length=3)


def test_length_must_be_positive():
    with pytest.raises(ValueError, match="`length` must be at least 1"):
        pad_sequences([[1]], length=0)
