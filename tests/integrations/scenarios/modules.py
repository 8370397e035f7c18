"""Keras 3 modules to wrap, and a Keras 2 model to hold them."""

import keras
import tensorflow as tf


class Subclassed(keras.Model):
    """Has a list of layers, a layer in a layer, and no `build`."""

    def __init__(self):
        super().__init__()
        self.blocks = [keras.layers.Dense(3), keras.layers.Dense(3)]
        self.inner = keras.Sequential([keras.layers.Dense(2)])
        self.dropout = keras.layers.Dropout(0.5, seed=3)

    def call(self, inputs):
        state = inputs["state"]
        for block in self.blocks:
            state = block(state)
        return {"out": self.dropout(self.inner(state)), "state": state}


class Members(tf.keras.Model):
    """Holds some layers."""

    def __init__(self, *members):
        super().__init__()
        self.members = members


class Tied(keras.Model):
    """Uses its table twice, once as the output kernel."""

    def __init__(self, **options):
        super().__init__()
        self.table = keras.layers.Embedding(5, 3, **options)
        self.same = self.table

    def call(self, ids):
        return keras.ops.matmul(
            self.table(ids), keras.ops.transpose(self.same.embeddings)
        )
