"""Regularizers of Keras 3 variables as losses of `tf.keras` 2."""

from typing import Any
from weakref import WeakValueDictionary

import keras
import tensorflow as tf

from keras_bft.integrations.tfrs._hidden import Hidden


class RegularizationLayer(tf.keras.layers.Layer):
    """Adds the regularization loss of one variable, and is never called.

    A Keras 2 model goes through the layers in it, each once, to sum up their
    losses. All wrapped modules that share a variable hold the same one of
    these, so that its loss counts once.
    """

    def __init__(self, variable: keras.Variable) -> None:
        super().__init__(name="regularization")
        self._variable = Hidden(variable)
        self.add_loss(self._loss)
        self.built = True

    def _loss(self) -> Any:
        variable = self._variable.value
        # As in Keras 3, what is frozen has no loss.
        if not variable.trainable:
            return None
        return tf.convert_to_tensor(variable.regularizer(variable))


# By the id of the variable, which lives at least as long as its layer does.
_layers: WeakValueDictionary[int, Any] = WeakValueDictionary()


def regularization_layer(variable: keras.Variable) -> RegularizationLayer:
    """Returns the one layer that adds a variable's regularization loss."""
    layer = _layers.get(id(variable))
    if layer is None:
        layer = _layers[id(variable)] = RegularizationLayer(variable)
    return layer
