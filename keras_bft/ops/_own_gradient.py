"""Functions that bring their gradient along."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bft._extras import import_extra
from keras_bft.typing import Tensor


def with_own_gradient(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """`keras.ops.custom_gradient`, and the output alone in TorchScript.

    What TorchScript writes for a server holds no Python function, and needs no
    gradient.
    """
    if is_written_for_a_server():
        return lambda *args: function(*args)[0]
    if keras.backend.backend() == "torch":
        return ops.custom_gradient(_with_output_apart(function))
    return ops.custom_gradient(function)


def _with_output_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, returning another tensor than its gradient may hold.

    PyTorch's output holds the gradient function. Were it held by it in turn,
    neither would be freed, nor what they hold: a step's memory, at each step.
    """

    def apart(*args: Tensor) -> tuple[Tensor, Any]:
        output, gradient = function(*args)
        return ops.stop_gradient(output), gradient

    return apart


def is_written_for_a_server() -> bool:
    """Whether TorchScript follows the call, as for OpenVINO."""
    if keras.backend.backend() != "torch":
        return False
    torch = import_extra("torch", "torch")
    return torch.jit.is_tracing()
