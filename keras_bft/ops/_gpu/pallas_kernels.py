"""Pallas kernels of the sums of `softmax_moments` and their gradient.

Each works on one tile of rows, or of keys, of one head, and goes over the
tiles of the other. Arrays are padded to whole tiles, and read where a kernel
says so: nothing else leaves the GPU's memory. Sizes of what is read are powers
of two, as Triton wants them, through which Pallas compiles.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from keras_bft.ops._gpu.operands import Tiles
from keras_bft.ops._moment_rows import MASKED

# What a kernel reads of an array or writes into one, `(rows, width)`.
Ref = Any


class Settings(NamedTuple):
    """What a kernel is compiled for.

    Attributes:
        tile: Sizes of the tiles.
        groups: As in `Operands`.
        interpret: Whether it runs without a GPU.
    """

    tile: Tiles
    groups: int
    interpret: bool

    def dot(self, x: jax.Array, y: jax.Array, contract: int = 0) -> jax.Array:
        """`x y`, or `x y^T` where axis 1 of both is contracted, in float32."""
        precision: Any = None
        if x.dtype == jnp.float32:
            # Three products on matrix units, which are as good as float32.
            precision = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
            if self.interpret:
                precision = lax.Precision.HIGHEST
        return lax.dot_general(
            x,
            y,
            (((1,), (contract,)), ((), ())),
            precision=precision,
            preferred_element_type=jnp.float32,
        )

    def parts(self) -> list[slice]:
        """The parts of the columns."""
        first, rest = self.tile.first, self.tile.rest
        both = [slice(0, first), slice(first, first + rest)]
        return both if rest else both[:1]

    def masked(
        self,
        logits: jax.Array,
        row: jax.Array,
        key: jax.Array,
        visible: jax.Array | None,
    ) -> jax.Array:
        """Logits, `MASKED` where the row may not see the key.

        Rows and keys are index columns and rows, either way round.
        """
        if visible is not None:
            logits = jnp.where(visible != 0, logits, MASKED)
        if self.groups:
            earlier = lax.div(row, jnp.int32(self.groups)) >= key
            logits = jnp.where(earlier, logits, MASKED)
        return logits

    def key_tiles(self, block: jax.Array, keys: int) -> int | jax.Array:
        """Tiles of keys that a tile of rows may see."""
        tiles = keys // self.tile.keys
        if not self.groups:
            return tiles
        last = (block + 1) * self.tile.rows - 1
        last = lax.div(last, jnp.int32(self.groups))
        last = lax.div(last, jnp.int32(self.tile.keys))
        return jnp.minimum(tiles, last + 1)


def forward(
    query: Ref,
    key: Ref,
    columns: Ref,
    bias: Ref,
    visible: Ref | None,
    sums: Ref,
    squares: Ref,
    log_total: Ref,
    *,
    settings: Settings,
) -> None:
    """Sums of a tile of rows."""
    tile, parts, dot = settings.tile, settings.parts(), settings.dot
    block = pl.program_id(2)
    row = block * tile.rows + jnp.arange(tile.rows)[:, None]
    q = query[...]

    def step(index: jax.Array, carry: Any) -> Any:
        top, total, squared, summed = carry
        at = pl.ds(index * tile.keys, tile.keys)
        logits = dot(q, key[at, :], 1) + bias[at][None, :]
        logits = settings.masked(
            logits,
            row,
            index * tile.keys + jnp.arange(tile.keys)[None, :],
            None if visible is None else visible[:, at],
        )
        higher = jnp.maximum(top, jnp.max(logits, axis=1))
        weights = jnp.exp(logits - higher[:, None])
        shrink = jnp.exp(top - higher)
        total = total * shrink + jnp.sum(weights, axis=1)
        squared = squared * shrink * shrink
        squared = squared + jnp.sum(weights * weights, axis=1)
        low = weights.astype(columns.dtype)
        summed = [
            x * shrink[:, None] + dot(low, columns[at, part])
            for x, part in zip(summed, parts, strict=True)
        ]
        return higher, total, squared, summed

    zero = jnp.zeros(tile.rows, jnp.float32)
    start = (
        jnp.full(tile.rows, MASKED, jnp.float32),
        zero,
        zero,
        [jnp.zeros((tile.rows, x.stop - x.start), jnp.float32) for x in parts],
    )
    end = settings.key_tiles(block, key.shape[0])
    top, total, squared, summed = lax.fori_loop(0, end, step, start)
    # A row that sees nothing has summed what it may not see.
    seen = top > 0.5 * MASKED
    inverse = jnp.where(seen, 1.0 / total, 0.0)
    log_total[...] = jnp.where(seen, top + jnp.log(total), -MASKED)
    squares[...] = squared * inverse * inverse
    for part, x in zip(parts, summed, strict=True):
        sums[:, part] = (x * inverse[:, None]).astype(sums.dtype)


def gradient_of_rows(
    query: Ref,
    key: Ref,
    columns: Ref,
    bias: Ref,
    visible: Ref | None,
    log_total: Ref,
    slope: Ref,
    twice_squares: Ref,
    mean: Ref,
    of_query: Ref,
    *,
    settings: Settings,
) -> None:
    """Gradient of a tile of queries."""
    tile, parts, dot = settings.tile, settings.parts(), settings.dot
    block = pl.program_id(2)
    row = block * tile.rows + jnp.arange(tile.rows)[:, None]
    q, total = query[...], log_total[...][:, None]
    twice, middle = twice_squares[...][:, None], mean[...][:, None]
    of_parts = [slope[:, part] for part in parts]

    def step(index: jax.Array, result: jax.Array) -> jax.Array:
        at = pl.ds(index * tile.keys, tile.keys)
        k = key[at, :]
        logits = settings.masked(
            dot(q, k, 1) + bias[at][None, :],
            row,
            index * tile.keys + jnp.arange(tile.keys)[None, :],
            None if visible is None else visible[:, at],
        )
        weights = jnp.exp(logits - total)
        slopes = twice * weights - middle
        for part, of_part in zip(parts, of_parts, strict=True):
            slopes = slopes + dot(of_part, columns[at, part], 1)
        return result + dot((weights * slopes).astype(k.dtype), k)

    end = settings.key_tiles(block, key.shape[0])
    start = jnp.zeros((tile.rows, tile.channels), jnp.float32)
    result = lax.fori_loop(0, end, step, start)
    of_query[...] = result.astype(of_query.dtype)


def gradient_of_keys(
    query: Ref,
    key: Ref,
    columns: Ref,
    bias: Ref,
    visible: Ref | None,
    log_total: Ref,
    slope: Ref,
    twice_squares: Ref,
    mean: Ref,
    of_key: Ref,
    of_columns: Ref,
    of_bias: Ref,
    *,
    settings: Settings,
) -> None:
    """Gradients of a tile of keys, their columns and biases.

    The weights are computed keys first: the products then take them as they
    are.
    """
    tile, parts, dot = settings.tile, settings.parts(), settings.dot
    first_key = pl.program_id(2) * tile.keys
    at = first_key + jnp.arange(tile.keys)[:, None]
    k, added = key[...], bias[...][:, None]
    x_parts = [columns[:, part] for part in parts]

    def step(index: jax.Array, carry: Any) -> Any:
        of_k, of_parts, of_added = carry
        rows = pl.ds(index * tile.rows, tile.rows)
        q = query[rows, :]
        logits = settings.masked(
            dot(k, q, 1) + added,
            index * tile.rows + jnp.arange(tile.rows)[None, :],
            at,
            None if visible is None else visible[rows, :].T,
        )
        weights = jnp.exp(logits - log_total[rows][None, :])
        low = weights.astype(slope.dtype)
        slopes = twice_squares[rows][None, :] * weights - mean[rows][None, :]
        of_next = []
        for part, x, of_part in zip(parts, x_parts, of_parts, strict=True):
            of_row = slope[rows, part]
            slopes = slopes + dot(x, of_row, 1)
            of_next.append(of_part + dot(low, of_row))
        of_logits = weights * slopes
        of_k = of_k + dot(of_logits.astype(q.dtype), q)
        return of_k, of_next, of_added + jnp.sum(of_logits, axis=1)

    begin: Any = 0
    if settings.groups:
        begin = lax.div(first_key * settings.groups, jnp.int32(tile.rows))
    start = (
        jnp.zeros((tile.keys, tile.channels), jnp.float32),
        [jnp.zeros((tile.keys, x.stop - x.start), jnp.float32) for x in parts],
        jnp.zeros(tile.keys, jnp.float32),
    )
    end = query.shape[0] // tile.rows
    of_k, of_parts, of_added = lax.fori_loop(begin, end, step, start)
    of_key[...] = of_k.astype(of_key.dtype)
    for part, x in zip(parts, of_parts, strict=True):
        of_columns[:, part] = x.astype(of_columns.dtype)
    of_bias[...] = of_added
