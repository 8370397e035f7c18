"""Values that layers report while `keras_bft.diagnostics.trace` listens."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from keras_bft.typing import Tensor

Records = list[tuple[Any, dict[str, Tensor]]]

_records: ContextVar[Records | None] = ContextVar("records", default=None)


def is_heard() -> bool:
    """Whether anyone listens, for values that take time to compute."""
    return _records.get() is not None


def report(layer: Any, **values: Tensor) -> None:
    """Hands intermediate values of a call to whoever listens."""
    records = _records.get()
    if records is not None:
        records.append((layer, values))


@contextmanager
def listening() -> Iterator[Records]:
    """Collects what layers report inside the `with` block.

    The block must run eagerly: the tensors of a compiled step do not leave it.
    """
    records: Records = []
    token = _records.set(records)
    try:
        yield records
    finally:
        _records.reset(token)
