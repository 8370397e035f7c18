import numpy as np

from keras_bft.layers import SegmentMask
from tests.layers.layer_checks import numpy


def test_segments_see_their_own_earlier_tokens():
    visible, positions = SegmentMask()(np.array([[0, 1, 1, 2, 2, 2, 0]]))
    assert numpy(positions).tolist() == [[0, 0, 1, 0, 1, 2, 0]]
    seen = [np.flatnonzero(row).tolist() for row in numpy(visible)[0]]
    assert seen == [[], [1], [1, 2], [3], [3, 4], [3, 4, 5], []]
    left = SegmentMask()(np.array([[False, True, True]]))
    assert numpy(left[1]).tolist() == [[0, 0, 1]]
