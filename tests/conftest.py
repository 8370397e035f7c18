"""Settings that every test runs under."""

import os

# Read when the backends are imported, so they have to come first. The tests
# are sized for a CPU; set the device to run them elsewhere.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")

import keras  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state():
    """Gives every test the same seeds, and the policy of no other test."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
