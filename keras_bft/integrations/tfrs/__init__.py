"""Keras 3 towers in TensorFlow Recommenders.

TensorFlow Recommenders (TFRS) runs on Keras 2: TensorFlow must have been told
to use it, by the environment variable `TF_USE_LEGACY_KERAS=1`, before anything
touches `tf.keras`. A Keras 3 layer or model is no part of that world. Put into
a TFRS model as it is, its optimizer fails, and files of its weights are written
and read without an error and without the weights. `Keras3Layer` carries it
across, and `check_wrapped` finds what was forgotten.
"""

from keras_bft.integrations.tfrs._legacy_keras import check_legacy_keras

# What follows is made of classes of Keras 2.
check_legacy_keras()

from keras_bft.integrations.tfrs.check_wrapped import check_wrapped  # noqa: E402
from keras_bft.integrations.tfrs.keras3_layer import Keras3Layer  # noqa: E402

__all__ = ["Keras3Layer", "check_wrapped"]
