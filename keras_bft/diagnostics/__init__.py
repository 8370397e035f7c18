"""What the filter does inside a model, as data and as pictures."""

from keras_bft.diagnostics.attention_sinks import attention_sinks
from keras_bft.diagnostics.calibration_plots import plot_reliability
from keras_bft.diagnostics.calibration_plots import plot_risk_coverage
from keras_bft.diagnostics.context_length import ContextCurve
from keras_bft.diagnostics.context_length import by_context_length
from keras_bft.diagnostics.gain_plots import plot_by_count
from keras_bft.diagnostics.gain_plots import plot_by_layer
from keras_bft.diagnostics.gain_plots import plot_by_position
from keras_bft.diagnostics.plots import plot_attention_sinks
from keras_bft.diagnostics.plots import plot_context_curves
from keras_bft.diagnostics.plots import plot_roc
from keras_bft.diagnostics.precision_map import plot_precision_map
from keras_bft.diagnostics.roc import RocCurve
from keras_bft.diagnostics.roc import roc_curve
from keras_bft.diagnostics.trace import Trace
from keras_bft.diagnostics.trace import trace
from keras_bft.diagnostics.training_plot import plot_training

__all__ = [
    "ContextCurve",
    "RocCurve",
    "Trace",
    "attention_sinks",
    "by_context_length",
    "plot_attention_sinks",
    "plot_by_count",
    "plot_by_layer",
    "plot_by_position",
    "plot_context_curves",
    "plot_precision_map",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_roc",
    "plot_training",
    "roc_curve",
    "trace",
]
