"""Launches the Triton kernels of `softmax_moments`."""

from typing import Any

import torch

from keras_bft.ops._gpu import triton_kernels
from keras_bft.ops._gpu.operands import Gradients
from keras_bft.ops._gpu.operands import Operands
from keras_bft.ops._gpu.operands import Slopes
from keras_bft.ops._gpu.operands import Sums
from keras_bft.ops._gpu.operands import tiles


def forward(operands: Operands, interpret: bool = False) -> Sums:
    """The sums.

    Args:
        operands: What is summed.
        interpret: Unused: Triton decides it when the kernels are imported, by
            `TRITON_INTERPRET`.
    """
    inputs, sizes, options = _arguments(operands)
    query, _, columns, *_ = inputs
    sums = columns.new_empty((*query.shape[:3], columns.shape[-1]))
    squares = query.new_empty(query.shape[:3], dtype=torch.float32)
    log_total = torch.empty_like(squares)
    outputs = (sums, squares, log_total)
    blocks = -(-query.shape[2] // options["ROWS"])
    arguments = (*inputs, *outputs, *sizes)
    _launch(triton_kernels.forward, blocks, arguments, options)
    return Sums(*outputs)


def backward(
    operands: Operands, slopes: Slopes, interpret: bool = False
) -> Gradients:
    """The gradients of the operands. The weights are computed again.

    Args:
        operands: As in `forward`.
        slopes: Gradient of what was summed.
        interpret: As in `forward`.
    """
    inputs, sizes, options = _arguments(operands)
    query, key, columns, bias, _ = inputs
    outputs = [torch.empty_like(x) for x in (query, key, columns, bias)]
    inputs = (*inputs, *(x.contiguous() for x in slopes))
    blocks = -(-query.shape[2] // options["ROWS"])
    arguments = (*inputs, outputs[0], *sizes)
    _launch(triton_kernels.gradient_of_rows, blocks, arguments, options)
    blocks = -(-key.shape[2] // options["KEYS"])
    arguments = (*inputs, *outputs[1:], *sizes)
    _launch(triton_kernels.gradient_of_keys, blocks, arguments, options)
    return Gradients(*outputs)


def _arguments(
    operands: Operands,
) -> tuple[tuple[Any, ...], tuple[int, ...], dict[str, Any]]:
    """Contiguous arrays, their sizes, and what is compiled for."""
    query, key, columns = (x.contiguous() for x in operands[:3])
    batch, heads, rows, channels = query.shape
    keys, width = columns.shape[2:]
    bias = operands.bias.expand(batch, heads, keys).contiguous()
    # Without a mask any pointer does, which is not read.
    visible, strides = bias, (0, 0)
    if operands.visible is not None:
        visible = operands.visible.contiguous().view(torch.uint8)
        strides = visible.expand(batch, heads, rows, keys).stride()[:2]
    tile = tiles(key, columns)
    options = {
        "VISIBLE": operands.visible is not None,
        "GROUPS": operands.groups,
        # Three products on matrix units, which are as good as float32. AMD's
        # compiler has none of them.
        "PRECISION": "ieee" if torch.version.hip else "tf32x3",
        "CHANNELS": tile.channels,
        "FIRST": tile.first,
        "REST": tile.rest,
        "ROWS": tile.rows,
        "KEYS": tile.keys,
    }
    sizes = (heads, rows, keys, channels, width, *strides)
    return (query, key, columns, bias, visible), sizes, options


def _launch(
    kernel: Any,
    blocks: int,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    """Runs a kernel for each block of each head, on the device of the query."""
    query = arguments[0]
    grid = (blocks * query.shape[0] * query.shape[1],)
    with torch.cuda.device_of(query):
        kernel[grid](*arguments, **options, num_stages=2)
