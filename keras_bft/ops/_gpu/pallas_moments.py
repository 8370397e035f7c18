"""Launches the Pallas kernels of `softmax_moments`."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pallas_triton

from keras_bft.ops._gpu import pallas_kernels
from keras_bft.ops._gpu.operands import Gradients
from keras_bft.ops._gpu.operands import Operands
from keras_bft.ops._gpu.operands import Slopes
from keras_bft.ops._gpu.operands import Sums
from keras_bft.ops._gpu.operands import tiles
from keras_bft.ops._gpu.pallas_kernels import Settings
from keras_bft.ops._moment_rows import MASKED


def forward(operands: Operands, interpret: bool = False) -> Sums:
    """The sums.

    Args:
        operands: What is summed.
        interpret: Whether to run without a GPU.
    """
    settings = _settings(operands, interpret)
    inputs = _padded(operands, settings)
    query, key, columns, bias, visible = inputs
    shape, tile = query.shape[:3], settings.tile
    sums, squares, log_total = _launch(
        pallas_kernels.forward,
        settings,
        [
            _tiled(query, tile.rows),
            *map(_whole, (key, columns, bias)),
            _tiled(visible, tile.rows),
        ],
        inputs,
        tile.rows,
        [
            jax.ShapeDtypeStruct((*shape, columns.shape[-1]), columns.dtype),
            jax.ShapeDtypeStruct(shape, jnp.float32),
            jax.ShapeDtypeStruct(shape, jnp.float32),
        ],
    )
    rows, width = operands.query.shape[2], operands.columns.shape[-1]
    return Sums(
        sums[:, :, :rows, :width], squares[:, :, :rows], log_total[:, :, :rows]
    )


def backward(
    operands: Operands, slopes: Slopes, interpret: bool = False
) -> Gradients:
    """The gradients of the operands. The weights are computed again.

    Args:
        operands: As in `forward`.
        slopes: Gradient of what was summed.
        interpret: As in `forward`.
    """
    settings = _settings(operands, interpret)
    tile = settings.tile
    inputs = _padded(operands, settings)
    query, key, columns, bias, visible = inputs
    batch, heads, rows, _ = query.shape
    of_rows = [
        _pad(slopes.log_total, {2: rows}, -MASKED),
        _pad(slopes.sums, {2: rows, 3: columns.shape[-1]}),
        _pad(slopes.twice_squares, {2: rows}),
        _pad(slopes.mean, {2: rows}),
    ]
    (of_query,) = _launch(
        pallas_kernels.gradient_of_rows,
        settings,
        [
            _tiled(query, tile.rows),
            *map(_whole, (key, columns, bias)),
            _tiled(visible, tile.rows),
            *(_tiled(x, tile.rows) for x in of_rows),
        ],
        [*inputs, *of_rows],
        tile.rows,
        [jax.ShapeDtypeStruct(query.shape, query.dtype)],
    )
    of_key, of_columns, of_bias = _launch(
        pallas_kernels.gradient_of_keys,
        settings,
        [
            _whole(query),
            *(_tiled(x, tile.keys) for x in (key, columns, bias)),
            _tiled(visible, tile.keys, axis=3),
            *map(_whole, of_rows),
        ],
        [*inputs, *of_rows],
        tile.keys,
        [
            jax.ShapeDtypeStruct(key.shape, key.dtype),
            jax.ShapeDtypeStruct(columns.shape, columns.dtype),
            jax.ShapeDtypeStruct((batch, heads, key.shape[2]), jnp.float32),
        ],
    )
    rows, channels = operands.query.shape[2:]
    keys, width = operands.columns.shape[2:]
    return Gradients(
        of_query[:, :, :rows, :channels],
        of_key[:, :, :keys, :channels],
        of_columns[:, :, :keys, :width],
        of_bias[:, :, :keys],
    )


def _settings(operands: Operands, interpret: bool) -> Settings:
    tile = tiles(operands.key, operands.columns)
    return Settings(tile, operands.groups, interpret)


def _padded(operands: Operands, settings: Settings) -> tuple[Any, ...]:
    """Arrays in whole tiles. Keys that are none are not seen."""
    tile = settings.tile
    rows = pl.cdiv(operands.query.shape[2], tile.rows) * tile.rows
    keys = pl.cdiv(operands.key.shape[2], tile.keys) * tile.keys
    visible = operands.visible
    if visible is not None:
        visible = _pad(visible.astype(jnp.int8), {2: rows, 3: keys})
    width = tile.first + tile.rest
    return (
        _pad(operands.query, {2: rows, 3: tile.channels}),
        _pad(operands.key, {2: keys, 3: tile.channels}),
        _pad(operands.columns, {2: keys, 3: width}),
        _pad(operands.bias, {2: keys}, MASKED),
        visible,
    )


def _pad(x: jax.Array, sizes: dict[int, int], value: float = 0.0) -> jax.Array:
    """Fills axes up to their sizes."""
    widths = [
        (0, sizes.get(axis, size) - size) for axis, size in enumerate(x.shape)
    ]
    return jnp.pad(x, widths, constant_values=value)


def _tiled(x: Any, size: int, axis: int = 2) -> pl.BlockSpec | None:
    """A tile of an array, of one head or of what all heads share."""
    if x is None:
        return None
    batch, heads = x.shape[:2]

    def index(i: Any, j: Any, block: Any) -> tuple[Any, ...]:
        of_axis = (block if n == axis else 0 for n in range(2, x.ndim))
        return (i if batch > 1 else 0, j if heads > 1 else 0, *of_axis)

    shape = [None, None, *x.shape[2:]]
    shape[axis] = size
    return pl.BlockSpec(tuple(shape), index)


def _whole(x: Any) -> pl.BlockSpec | None:
    """An array of one head."""
    return None if x is None else _tiled(x, x.shape[2])


def _launch(
    kernel: Callable[..., None],
    settings: Settings,
    specs: list[pl.BlockSpec | None],
    arrays: Sequence[jax.Array | None],
    size: int,
    outputs: list[jax.ShapeDtypeStruct],
) -> list[jax.Array]:
    """Runs a kernel for each tile of the outputs."""
    batch, heads, count = outputs[0].shape[:3]
    return pl.pallas_call(
        functools.partial(kernel, settings=settings),
        grid=(batch, heads, count // size),
        in_specs=specs,
        out_specs=[_tiled(x, size) for x in outputs],
        out_shape=outputs,
        compiler_params=pallas_triton.CompilerParams(num_stages=2),
        interpret=settings.interpret,
    )(*arrays)
