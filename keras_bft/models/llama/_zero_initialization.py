"""Backbones that are built to be filled with a checkpoint's weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_zeros = ContextVar("zeros", default=False)


@contextmanager
def zero_initialization() -> Iterator[None]:
    """Builds backbones with zeros where a checkpoint's weights will stand.

    Random numbers are drawn in float32, which takes more memory than the
    largest weight does in half precision.
    """
    token = _zeros.set(True)
    try:
        yield
    finally:
        _zeros.reset(token)


def initializes_with_zeros() -> bool:
    """Whether `zero_initialization` is in effect."""
    return _zeros.get()
