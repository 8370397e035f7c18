"""Settings that every test runs under."""

import atexit
import ctypes
import gc
import os
import socket
import tempfile

# Read when the backends are imported, so they have to come first. The tests
# are sized for a CPU; set the device to run them elsewhere.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_TORCH_DEVICE", "cpu")
# Triton decides when it is imported whether kernels run without a GPU.
if os.environ["KERAS_TORCH_DEVICE"] == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Most programs run once or twice, so that compiling them is what takes time:
# XLA is asked to optimise little, and JAX to keep what it has compiled. Not on
# TensorFlow, where programs compiled like that can give NaN.
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0"
        " --xla_llvm_disable_expensive_passes=true"
        " --xla_cpu_use_fusion_emitters=false",
    )
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="jax-cache-")
    atexit.register(_cache.cleanup)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras  # noqa: E402
import pytest  # noqa: E402

_connect = socket.socket.connect


def _connect_here(self, address):
    """Connects to this machine alone: no test may reach the network."""
    is_here = self.family == socket.AF_UNIX or address[0] in (
        "localhost",
        "127.0.0.1",
        "::1",
    )
    if not is_here:
        raise PermissionError(
            f"A test must not reach the network. Received: address={address}"
        )
    return _connect(self, address)


socket.socket.connect = _connect_here


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "any_backend: slow and without tensors; `python -m tests` runs it on "
        "one backend",
    )


def pytest_collection_finish():
    # What is imported by now stays, so the collector need not look through it
    # again and again.
    keras.utils.set_random_seed(0)
    gc.collect()
    gc.freeze()


def _resident_bytes():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


_held = 0


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory():
    """Gives back what is held, when that is much.

    JAX forgets its programs, too: they are on disk.
    """
    global _held
    yield
    if _resident_bytes() < _held + 2**31:
        return
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _held = _resident_bytes()


@pytest.fixture(autouse=True)
def _fresh_state():
    """Gives every test the same seeds, and the policy of no other test."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
