"""The trained tower's file on a backend that TFRS knows nothing of.

KERAS_BACKEND=jax python -m tests.integrations.scenarios.other_backend FOLDER
"""

import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import keras
import numpy as np

import keras_bft  # noqa: F401
from tests.integrations.scenarios.checks import expect_error


def import_adapter():
    import keras_bft.integrations.tfrs  # noqa: F401


backend = keras.backend.backend()
assert backend != "tensorflow"
tower = keras.saving.load_model(f"{sys.argv[1]}/tower.keras")
expected = np.load(f"{sys.argv[1]}/tower.npz")
np.testing.assert_allclose(
    tower.predict(expected["histories"], verbose=0),
    expected["queries"],
    atol=1e-5,
)
message = expect_error(ImportError, "KERAS_BACKEND=tensorflow", import_adapter)
assert message.endswith(f"Received: keras.backend.backend()={backend!r}")
