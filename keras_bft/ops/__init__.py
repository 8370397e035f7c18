"""The mathematics of the filter: pure functions on tensors."""

from keras_bft.ops.activation_derivative import activation_derivative
from keras_bft.ops.fused_estimate import fused_estimate
from keras_bft.ops.jacobian import feed_forward_jacobian
from keras_bft.ops.jacobian import gated_feed_forward_jacobian
from keras_bft.ops.jacobian import gated_slopes
from keras_bft.ops.jacobian import jacobian_kernel
from keras_bft.ops.jacobian import layer_norm_jacobian
from keras_bft.ops.jacobian import mean_feed_forward_jacobian
from keras_bft.ops.jacobian import mean_gated_feed_forward_jacobian
from keras_bft.ops.jacobian import mean_jacobian_kernel
from keras_bft.ops.jacobian import rms_norm_jacobian
from keras_bft.ops.kriging import blockwise_estimate
from keras_bft.ops.kriging import kriging_observation
from keras_bft.ops.kriging import kriging_weights
from keras_bft.ops.kriging_statistics import KrigingObservation
from keras_bft.ops.kriging_statistics import kriging_estimate
from keras_bft.ops.kriging_statistics import kriging_statistics
from keras_bft.ops.observation import observation_log_precision
from keras_bft.ops.observation import project_log_precision
from keras_bft.ops.observation import projected_log_precision
from keras_bft.ops.observation import projected_observation_log_precision
from keras_bft.ops.observation import squared_projection
from keras_bft.ops.precision import NO_OBSERVATION
from keras_bft.ops.precision import kalman_update
from keras_bft.ops.precision import log_mean_precision
from keras_bft.ops.precision import normalized_log_precision
from keras_bft.ops.precision import predict_log_precision
from keras_bft.ops.precision import unit_snr_log_precision
from keras_bft.ops.rotary import rotate
from keras_bft.ops.rotary import rotation
from keras_bft.ops.sandwich import SandwichObservation
from keras_bft.ops.sandwich import sandwich_observation
from keras_bft.ops.sandwich import sandwich_weights
from keras_bft.ops.softmax_moments import Moments
from keras_bft.ops.softmax_moments import WeightDropout
from keras_bft.ops.softmax_moments import softmax_moments
from keras_bft.ops.softmax_moments import weight_rows
from keras_bft.ops.units import carried_log_precision
from keras_bft.ops.units import head_log_precision
from keras_bft.ops.units import squared_value_gain
from keras_bft.ops.units import value_log_precision

__all__ = [
    "KrigingObservation",
    "Moments",
    "NO_OBSERVATION",
    "SandwichObservation",
    "WeightDropout",
    "activation_derivative",
    "blockwise_estimate",
    "carried_log_precision",
    "feed_forward_jacobian",
    "fused_estimate",
    "gated_feed_forward_jacobian",
    "gated_slopes",
    "head_log_precision",
    "jacobian_kernel",
    "kalman_update",
    "kriging_estimate",
    "kriging_observation",
    "kriging_statistics",
    "kriging_weights",
    "layer_norm_jacobian",
    "log_mean_precision",
    "mean_feed_forward_jacobian",
    "mean_gated_feed_forward_jacobian",
    "mean_jacobian_kernel",
    "normalized_log_precision",
    "observation_log_precision",
    "predict_log_precision",
    "project_log_precision",
    "projected_log_precision",
    "projected_observation_log_precision",
    "rms_norm_jacobian",
    "rotate",
    "rotation",
    "sandwich_observation",
    "sandwich_weights",
    "softmax_moments",
    "squared_projection",
    "squared_value_gain",
    "unit_snr_log_precision",
    "value_log_precision",
    "weight_rows",
]
