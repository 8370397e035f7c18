"""Import of Keras, with an error that says how a backend is chosen."""

import os

try:
    import keras as keras
except ModuleNotFoundError as error:
    name = (error.name or "").split(".")[0]
    if name not in ("jax", "tensorflow", "torch"):
        raise
    chosen = os.environ.get("KERAS_BACKEND")
    raise ModuleNotFoundError(
        f"Keras runs on {name}, which is not installed. Set the "
        "environment variable KERAS_BACKEND to 'jax', 'tensorflow' or 'torch' "
        "before Keras is imported, and install that one, such as with "
        '`pip install "keras-bft[jax]"`. '
        f"Received: KERAS_BACKEND={chosen!r}",
        name=name,
    ) from error
