"""What the filter does inside a model, as data and as pictures."""

from keras_bft.diagnostics.attention_sinks import attention_sinks
from keras_bft.diagnostics.context_length import ContextCurve
from keras_bft.diagnostics.context_length import by_context_length
from keras_bft.diagnostics.plots import plot_attention_sinks
from keras_bft.diagnostics.plots import plot_context_curves
from keras_bft.diagnostics.plots import plot_roc
from keras_bft.diagnostics.roc import RocCurve
from keras_bft.diagnostics.roc import roc_curve
from keras_bft.diagnostics.trace import trace

__all__ = [
    "ContextCurve",
    "RocCurve",
    "attention_sinks",
    "by_context_length",
    "plot_attention_sinks",
    "plot_context_curves",
    "plot_roc",
    "roc_curve",
    "trace",
]
