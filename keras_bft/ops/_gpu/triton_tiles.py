"""What the Triton kernels of `softmax_moments` share: tiles and masks."""

import triton
import triton.language as tl

from keras_bft.ops import _moment_rows

MASKED = tl.constexpr(_moment_rows.MASKED)


@triton.jit
def load(
    matrix: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    START: tl.constexpr,
    SIZE: tl.constexpr,
) -> tl.tensor:
    """Columns of some rows of a matrix, zero outside of it."""
    column = START + tl.arange(0, SIZE)[None, :]
    inside = (row[:, None] < rows) & (column < width)
    at = matrix + row[:, None] * width + column
    return tl.load(at, mask=inside, other=0.0)


@triton.jit
def store(
    matrix: tl.tensor,
    values: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    START: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    column = START + tl.arange(0, SIZE)[None, :]
    inside = (row[:, None] < rows) & (column < width)
    at = matrix + row[:, None] * width + column
    tl.store(at, values.to(matrix.dtype.element_ty), mask=inside)


@triton.jit
def masked(
    logits: tl.tensor,
    row: tl.tensor,
    key: tl.tensor,
    rows: tl.tensor,
    keys: tl.tensor,
    visible: tl.tensor,
    VISIBLE: tl.constexpr,
    GROUPS: tl.constexpr,
) -> tl.tensor:
    """Logits, `MASKED` where the row may not see the key.

    Rows and keys are index columns and rows, either way round.
    """
    if VISIBLE:
        inside = (row < rows) & (key < keys)
        at = visible + row.to(tl.int64) * keys + key
        seen = tl.load(at, mask=inside, other=0)
        logits = tl.where(seen != 0, logits, MASKED)
    if GROUPS > 0:
        logits = tl.where(row // GROUPS >= key, logits, MASKED)
    return logits


@triton.jit
def visible_of_head(
    visible: tl.tensor,
    head: tl.tensor,
    heads: tl.tensor,
    batch_stride: tl.tensor,
    head_stride: tl.tensor,
) -> tl.tensor:
    return visible + head // heads * batch_stride + head % heads * head_stride


@triton.jit
def end_of_keys(
    block: tl.tensor, keys: tl.tensor, GROUPS: tl.constexpr, ROWS: tl.constexpr
) -> tl.tensor:
    """The key after the last one that a tile of rows may see."""
    end = keys
    if GROUPS > 0:
        end = tl.minimum(keys, ((block + 1) * ROWS - 1) // GROUPS + 1)
    return end
