"""Values that layers report while `keras_bft.diagnostics.trace` listens."""

from collections.abc import Collection
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import keras

from keras_bft._extras import import_extra
from keras_bft.typing import Tensor

Records = list[tuple[Any, dict[str, Tensor]]]

# Values with a query and a key position, which take most of the memory.
WEIGHTS = ("kriging_weights", "attention_weights")


@dataclass
class _Listener:
    """What is wanted, `None` for all, and what was heard."""

    values: Collection[str] | None
    records: Records = field(default_factory=list)


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


def is_heard(*names: str) -> bool:
    """Whether anyone listens to one of these values, or to any at all.

    For values that take time or memory to compute.
    """
    listener = _listener.get()
    if listener is None:
        return False
    wanted = listener.values
    return not names or wanted is None or any(n in wanted for n in names)


def report(layer: Any, **values: Tensor) -> None:
    """Hands intermediate values of a call to whoever listens."""
    listener = _listener.get()
    if listener is None:
        return
    if listener.values is not None:
        values = {n: x for n, x in values.items() if n in listener.values}
        if not values:
            return
    listener.records.append((layer, values))


@contextmanager
def listening(values: Collection[str] | None = None) -> Iterator[Records]:
    """Collects what layers report inside the `with` block.

    The block must run eagerly: the tensors of a compiled step do not leave it.
    PyTorch records nothing for gradients in it, which would hold every layer.

    Args:
        values: Names of the values to collect, the others are not held.
            Defaults to all.
    """
    listener = _Listener(values)
    token = _listener.set(listener)
    try:
        with _without_gradients():
            yield listener.records
    finally:
        _listener.reset(token)


def _without_gradients() -> Any:
    if keras.backend.backend() != "torch":
        return nullcontext()
    torch = import_extra("torch", "torch")
    return torch.no_grad()
