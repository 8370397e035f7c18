"""Training on batches of ids that are made already."""

from typing import Any

import keras
import keras_hub


class BatchedTraining(keras_hub.models.CausalLM):
    """`keras_hub.models.CausalLM` that trains on a `PyDataset` of ids too.

    keras-hub applies the preprocessor to all that `fit` and `evaluate` are
    given, as texts, arrays or a dataset of TensorFlow or grain, and refuses a
    `keras.utils.PyDataset`. That is given to Keras as it is: its batches hold
    ids, as those of `keras_bft.data.TokenDataset` do.
    """

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, keras.utils.PyDataset):
            return keras.Model.fit(self, x, *args, **kwargs)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, keras.utils.PyDataset):
            return keras.Model.evaluate(self, x, *args, **kwargs)
        return super().evaluate(x, *args, **kwargs)
