"""Programs on eight virtual devices of the CPU, which JAX alone has."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

only_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="only JAX distributes"
)


def run(code: str, flags: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program that has to succeed, in a process of its own.

    Args:
        code: The program.
        flags: Other XLA flags.
    """
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=8",
        },
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result
