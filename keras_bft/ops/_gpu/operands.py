"""What the kernels of `softmax_moments` read, and the tiles they work on."""

from typing import NamedTuple

from keras_bft.typing import Tensor

# Bytes of a tile of keys and their columns, at most: with what the compiler
# keeps besides, that is what the smaller GPUs have as shared memory.
TILE_BYTES = 27 * 1024

# Rows or keys of a tile, at most. The matrix units take no fewer than 16.
TILE = 64
SMALLEST = 16


class Operands(NamedTuple):
    """Arrays by key head, and what is computed of them.

    Attributes:
        query: Scaled, `(B, Hk, R, C)`, rows as `weight_rows` says.
        key: `(B, Hk, S, C)`.
        columns: `(B, Hk, S, M)`.
        bias: `(B or 1, Hk or 1, S)` float32, `MASKED` at keys not seen.
        visible: `(B or 1, Hk or 1, R, S)` bool, or `None` where all is seen.
        groups: Rows of a query, which sees its own and earlier keys only.
            Zero where it sees later ones too.
    """

    query: Tensor
    key: Tensor
    columns: Tensor
    bias: Tensor
    visible: Tensor | None
    groups: int


class Slopes(NamedTuple):
    """Gradient of what was summed.

    Attributes:
        log_total: As in `Sums`.
        sums: Of the sums, `(B, Hk, R, M)` in the dtype of the columns.
        twice_squares: Of the squared weights, times two, `(B, Hk, R)` float32.
        mean: Of the weights, its weighted mean, `(B, Hk, R)` float32.
    """

    log_total: Tensor
    sums: Tensor
    twice_squares: Tensor
    mean: Tensor


class Sums(NamedTuple):
    """What the forward kernel sums.

    Attributes:
        sums: `(B, Hk, R, M)` in the dtype of the columns.
        squares: Of the weights, `(B, Hk, R)` float32.
        log_total: Log of each row's sum of exponentials, `(B, Hk, R)`
            float32, and so large where it sees nothing that its weights are
            zero.
    """

    sums: Tensor
    squares: Tensor
    log_total: Tensor


class Gradients(NamedTuple):
    """Gradients of the operands, in their dtypes.

    Attributes:
        query: `(B, Hk, R, C)`.
        key: `(B, Hk, S, C)`.
        columns: `(B, Hk, S, M)`.
        bias: `(B, Hk, S)` float32.
    """

    query: Tensor
    key: Tensor
    columns: Tensor
    bias: Tensor


class Tiles(NamedTuple):
    """Sizes of the tiles, all powers of two.

    Attributes:
        channels: Of queries and keys.
        first: Columns of the first part.
        rest: Columns of the second part, or zero: the statistics add a few to
            a power of two, and would double it.
        rows: Rows of a tile.
        keys: Keys of a tile.
    """

    channels: int
    first: int
    rest: int
    rows: int
    keys: int


def tiles(key: Tensor, columns: Tensor) -> Tiles:
    """Tiles of keys `(., ., S, C)` and columns `(., ., S, M)`."""
    channels, width = power_of_two(key.shape[-1]), columns.shape[-1]
    first, rest = power_of_two(width), 0
    half = first // 2
    if width > half >= SMALLEST:
        last = power_of_two(width - half)
        if last < half:
            first, rest = half, last
    size = channels * key.dtype.itemsize
    size += (first + rest) * columns.dtype.itemsize
    fits = 1 << (TILE_BYTES // size).bit_length() - 1
    count = max(SMALLEST, min(TILE, fits))
    return Tiles(channels, first, rest, count, count)


def power_of_two(size: int) -> int:
    """The least power of two that the matrix units take and is as large."""
    return max(SMALLEST, 1 << (size - 1).bit_length())
