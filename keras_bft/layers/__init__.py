"""Filter layers: each carries a log-precision beside a state."""

from keras_bft.layers.attention_dropout import AttentionDropout
from keras_bft.layers.bft_attention import BFTAttention
from keras_bft.layers.bft_hstu_layer import BFTHSTULayer
from keras_bft.layers.bft_layer import BFTLayer
from keras_bft.layers.gated_attention import GatedAttention
from keras_bft.layers.item_encoder import ItemEncoder
from keras_bft.layers.kalman_residual import KalmanResidual
from keras_bft.layers.precision_embedding import PrecisionEmbedding
from keras_bft.layers.precision_feed_forward import PrecisionFeedForward
from keras_bft.layers.precision_mlp import PrecisionMLP
from keras_bft.layers.rotary_embedding import RotaryEmbedding
from keras_bft.layers.segment_mask import SegmentMask
from keras_bft.layers.state_normalization import StateNormalization

__all__ = [
    "AttentionDropout",
    "BFTAttention",
    "BFTHSTULayer",
    "BFTLayer",
    "GatedAttention",
    "ItemEncoder",
    "KalmanResidual",
    "PrecisionEmbedding",
    "PrecisionFeedForward",
    "PrecisionMLP",
    "RotaryEmbedding",
    "SegmentMask",
    "StateNormalization",
]
