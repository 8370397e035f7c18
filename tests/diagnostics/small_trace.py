"""A trace of a small recommender."""

import functools

import numpy as np

from keras_bft.diagnostics import Trace
from keras_bft.diagnostics import trace
from keras_bft.models import SASRec

ITEMS = np.array([[3, 5, 7, 2, 0, 0], [4, 4, 8, 0, 0, 0]])
REAL = ITEMS != 0


@functools.cache
def small_trace(num_layers: int = 2) -> Trace:
    model = SASRec(9, max_length=6, embedding_dim=8, num_layers=num_layers)
    model.build((None, 6))
    rng = np.random.default_rng(0)
    model.prior.embeddings.assign(rng.normal(size=(10, 1)))
    return trace(model, ITEMS)


def token_means(name: str) -> np.ndarray:
    values = small_trace()[name].astype("float64")
    return values.reshape(*ITEMS.shape, -1).mean(axis=-1)
