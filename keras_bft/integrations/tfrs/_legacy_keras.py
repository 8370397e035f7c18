"""A check that `tf.keras` is the Keras 2 that TFRS runs on."""

import os

import keras

from keras_bft._extras import import_extra


def check_legacy_keras() -> None:
    """Checks that `tf.keras` is Keras 2, or says how to get it.

    Raises:
        ImportError: If the environment variable is missing or came too late,
            if Keras runs on another backend, or if a package is not installed.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ImportError(
            "TensorFlow Recommenders needs Keras to run on TensorFlow. Set "
            "the environment variable KERAS_BACKEND=tensorflow before Keras "
            f"is imported. Received: keras.backend.backend()={backend!r}"
        )
    variable = os.environ.get("TF_USE_LEGACY_KERAS")
    # The values that TensorFlow itself looks for.
    if variable not in ("1", "true", "True"):
        raise ImportError(
            "TensorFlow Recommenders needs `tf.keras` to be Keras 2. Set the "
            "environment variable TF_USE_LEGACY_KERAS=1, in the shell or as "
            "the first lines of the program:\n\n"
            '    import os\n    os.environ["TF_USE_LEGACY_KERAS"] = "1"\n\n'
            f"Received: TF_USE_LEGACY_KERAS={variable!r}"
        )
    import_extra("tf_keras", "tfrs")
    tensorflow = import_extra("tensorflow", "tfrs")
    if issubclass(tensorflow.keras.layers.Layer, keras.layers.Layer):
        raise ImportError(
            "TF_USE_LEGACY_KERAS was set too late: something used `tf.keras` "
            "before, and TensorFlow chooses its Keras once, at the first use. "
            "`import keras_hub` is such a use. Start Python anew, with the "
            "variable set in the shell or before any other import. "
            f"Received: tf.keras {tensorflow.keras.__version__}"
        )
