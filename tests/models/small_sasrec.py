"""A small SASRec, and items for it."""

from typing import Any

import numpy as np
import pytest

from keras_bft.models import SASRec

NUM_ITEMS, MAX_LENGTH, DIM = 9, 6, 8
SIZES = {
    "num_items": NUM_ITEMS,
    "max_length": MAX_LENGTH,
    "embedding_dim": DIM,
}
ITEMS = np.array([[3, 5, 7, 2, 9, 1], [4, 4, 8, 0, 0, 0]], "int32")
each_form = pytest.mark.parametrize("form", ["light", "full"])


def built(**options: Any) -> SASRec:
    model = SASRec(**{**SIZES, **options})
    model.build((None, MAX_LENGTH))
    return model
