"""What the filter does inside a model."""

from keras_bft.diagnostics.trace import trace

__all__ = ["trace"]
