"""Bayesian Filtering Transformers for Keras 3."""

from keras_bft import _backend as _backend  # First: it reports what is missing.
from keras_bft import data
from keras_bft import diagnostics
from keras_bft import evaluation
from keras_bft import layers
from keras_bft import losses
from keras_bft import metrics
from keras_bft import models
from keras_bft import ops
from keras_bft import training
from keras_bft._version import __version__
from keras_bft.models import convert

__all__ = [
    "__version__",
    "convert",
    "data",
    "diagnostics",
    "evaluation",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "training",
]
