"""Triton kernels of the sums of `softmax_moments` and their gradient.

Each works on one tile of rows, or of keys, of one head, and goes over the
tiles of the other. Arrays are contiguous, `(heads, rows or keys, width)`.
"""

import triton
import triton.language as tl

from keras_bft.ops._gpu.triton_tiles import MASKED
from keras_bft.ops._gpu.triton_tiles import end_of_keys
from keras_bft.ops._gpu.triton_tiles import load
from keras_bft.ops._gpu.triton_tiles import masked
from keras_bft.ops._gpu.triton_tiles import store
from keras_bft.ops._gpu.triton_tiles import visible_of_head


@triton.jit
def forward(
    query: tl.tensor,
    key: tl.tensor,
    columns: tl.tensor,
    bias: tl.tensor,
    visible: tl.tensor,
    sums: tl.tensor,
    squares: tl.tensor,
    log_total: tl.tensor,
    heads: tl.tensor,
    rows: tl.tensor,
    keys: tl.tensor,
    channels: tl.tensor,
    width: tl.tensor,
    batch_stride: tl.tensor,
    head_stride: tl.tensor,
    VISIBLE: tl.constexpr,
    GROUPS: tl.constexpr,
    PRECISION: tl.constexpr,
    CHANNELS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:
    """Sums of a tile of rows."""
    blocks = tl.cdiv(rows, ROWS)
    # Causal rows see more keys the later they are: those go first.
    block = blocks - 1 - tl.program_id(0) % blocks
    head = (tl.program_id(0) // blocks).to(tl.int64)
    row = block * ROWS + tl.arange(0, ROWS)
    key += head * keys * channels
    columns += head * keys * width
    bias += head * keys
    visible = visible_of_head(visible, head, heads, batch_stride, head_stride)
    q = load(query + head * rows * channels, row, rows, channels, 0, CHANNELS)
    top = tl.full([ROWS], MASKED, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    squared = tl.zeros([ROWS], tl.float32)
    first = tl.zeros([ROWS, FIRST], tl.float32)
    if REST > 0:
        rest = tl.zeros([ROWS, REST], tl.float32)
    for start in range(0, end_of_keys(block, keys, GROUPS, ROWS), KEYS):
        at = start + tl.arange(0, KEYS)
        k = load(key, at, keys, channels, 0, CHANNELS)
        x = load(columns, at, keys, width, 0, FIRST)
        added = tl.load(bias + at, mask=at < keys, other=MASKED)
        logits = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        logits = masked(
            logits + added[None, :],
            row[:, None],
            at[None, :],
            rows,
            keys,
            visible,
            VISIBLE,
            GROUPS,
        )
        higher = tl.maximum(top, tl.max(logits, 1))
        weights = tl.exp(logits - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        squared = squared * shrink * shrink + tl.sum(weights * weights, 1)
        low = weights.to(x.dtype)
        first = first * shrink[:, None]
        first = tl.dot(low, x, first, input_precision=PRECISION)
        if REST > 0:
            x = load(columns, at, keys, width, FIRST, REST)
            rest = rest * shrink[:, None]
            rest = tl.dot(low, x, rest, input_precision=PRECISION)
        top = higher
    # A row that sees nothing has summed what it may not see.
    seen = top > 0.5 * MASKED
    inverse = tl.where(seen, 1.0 / total, 0.0)
    total = tl.where(seen, top + tl.log(total), -MASKED)
    at = head * rows + row
    tl.store(log_total + at, total, mask=row < rows)
    squared = squared * inverse * inverse
    tl.store(squares + at, squared, mask=row < rows)
    sums += head * rows * width
    inverse = inverse[:, None]
    store(sums, first * inverse, row, rows, width, 0, FIRST)
    if REST > 0:
        store(sums, rest * inverse, row, rows, width, FIRST, REST)


@triton.jit
def gradient_of_rows(
    query: tl.tensor,
    key: tl.tensor,
    columns: tl.tensor,
    bias: tl.tensor,
    visible: tl.tensor,
    log_total: tl.tensor,
    slope: tl.tensor,
    twice_squares: tl.tensor,
    mean: tl.tensor,
    of_query: tl.tensor,
    heads: tl.tensor,
    rows: tl.tensor,
    keys: tl.tensor,
    channels: tl.tensor,
    width: tl.tensor,
    batch_stride: tl.tensor,
    head_stride: tl.tensor,
    VISIBLE: tl.constexpr,
    GROUPS: tl.constexpr,
    PRECISION: tl.constexpr,
    CHANNELS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:
    """Gradient of a tile of queries."""
    blocks = tl.cdiv(rows, ROWS)
    block = blocks - 1 - tl.program_id(0) % blocks
    head = (tl.program_id(0) // blocks).to(tl.int64)
    row = block * ROWS + tl.arange(0, ROWS)
    key += head * keys * channels
    columns += head * keys * width
    bias += head * keys
    slope += head * rows * width
    visible = visible_of_head(visible, head, heads, batch_stride, head_stride)
    q = load(query + head * rows * channels, row, rows, channels, 0, CHANNELS)
    of_first = load(slope, row, rows, width, 0, FIRST)
    if REST > 0:
        of_rest = load(slope, row, rows, width, FIRST, REST)
    of_row = head * rows + row
    total = tl.load(log_total + of_row, mask=row < rows, other=-MASKED)
    middle = tl.load(mean + of_row, mask=row < rows, other=0.0)
    twice = tl.load(twice_squares + of_row, mask=row < rows, other=0.0)
    result = tl.zeros([ROWS, CHANNELS], tl.float32)
    for start in range(0, end_of_keys(block, keys, GROUPS, ROWS), KEYS):
        at = start + tl.arange(0, KEYS)
        k = load(key, at, keys, channels, 0, CHANNELS)
        x = load(columns, at, keys, width, 0, FIRST)
        added = tl.load(bias + at, mask=at < keys, other=MASKED)
        logits = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        logits = masked(
            logits + added[None, :],
            row[:, None],
            at[None, :],
            rows,
            keys,
            visible,
            VISIBLE,
            GROUPS,
        )
        weights = tl.exp(logits - total[:, None])
        slopes = tl.dot(of_first, tl.trans(x), input_precision=PRECISION)
        if REST > 0:
            x = load(columns, at, keys, width, FIRST, REST)
            slopes = tl.dot(
                of_rest, tl.trans(x), slopes, input_precision=PRECISION
            )
        slopes += twice[:, None] * weights - middle[:, None]
        of_logits = weights * slopes
        low = of_logits.to(k.dtype)
        result = tl.dot(low, k, result, input_precision=PRECISION)
    of_query += head * rows * channels
    store(of_query, result, row, rows, channels, 0, CHANNELS)


@triton.jit
def gradient_of_keys(
    query: tl.tensor,
    key: tl.tensor,
    columns: tl.tensor,
    bias: tl.tensor,
    visible: tl.tensor,
    log_total: tl.tensor,
    slope: tl.tensor,
    twice_squares: tl.tensor,
    mean: tl.tensor,
    of_key: tl.tensor,
    of_columns: tl.tensor,
    of_bias: tl.tensor,
    heads: tl.tensor,
    rows: tl.tensor,
    keys: tl.tensor,
    channels: tl.tensor,
    width: tl.tensor,
    batch_stride: tl.tensor,
    head_stride: tl.tensor,
    VISIBLE: tl.constexpr,
    GROUPS: tl.constexpr,
    PRECISION: tl.constexpr,
    CHANNELS: tl.constexpr,
    FIRST: tl.constexpr,
    REST: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:
    """Gradients of a tile of keys, their columns and biases.

    The weights are computed keys first: the products then take them as they
    are.
    """
    blocks = tl.cdiv(keys, KEYS)
    block = tl.program_id(0) % blocks
    head = (tl.program_id(0) // blocks).to(tl.int64)
    at = block * KEYS + tl.arange(0, KEYS)
    query += head * rows * channels
    slope += head * rows * width
    columns += head * keys * width
    visible = visible_of_head(visible, head, heads, batch_stride, head_stride)
    k = load(key + head * keys * channels, at, keys, channels, 0, CHANNELS)
    x_first = load(columns, at, keys, width, 0, FIRST)
    if REST > 0:
        x_rest = load(columns, at, keys, width, FIRST, REST)
        rest = tl.zeros([KEYS, REST], tl.float32)
    added = tl.load(bias + head * keys + at, mask=at < keys, other=MASKED)
    first = tl.zeros([KEYS, FIRST], tl.float32)
    result = tl.zeros([KEYS, CHANNELS], tl.float32)
    total_slope = tl.zeros([KEYS], tl.float32)
    begin = 0
    if GROUPS > 0:
        begin = block * KEYS * GROUPS // ROWS * ROWS
    for start in range(begin, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        q = load(query, row, rows, channels, 0, CHANNELS)
        of_first = load(slope, row, rows, width, 0, FIRST)
        of_row = head * rows + row
        total = tl.load(log_total + of_row, mask=row < rows, other=-MASKED)
        middle = tl.load(mean + of_row, mask=row < rows, other=0.0)
        twice = tl.load(twice_squares + of_row, mask=row < rows, other=0.0)
        logits = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        logits = masked(
            logits + added[:, None],
            row[None, :],
            at[:, None],
            rows,
            keys,
            visible,
            VISIBLE,
            GROUPS,
        )
        weights = tl.exp(logits - total[None, :])
        low = weights.to(of_first.dtype)
        first = tl.dot(low, of_first, first, input_precision=PRECISION)
        slopes = tl.dot(x_first, tl.trans(of_first), input_precision=PRECISION)
        if REST > 0:
            of_rest = load(slope, row, rows, width, FIRST, REST)
            rest = tl.dot(low, of_rest, rest, input_precision=PRECISION)
            slopes = tl.dot(
                x_rest, tl.trans(of_rest), slopes, input_precision=PRECISION
            )
        slopes += twice[None, :] * weights - middle[None, :]
        of_logits = weights * slopes
        total_slope += tl.sum(of_logits, 1)
        low = of_logits.to(q.dtype)
        result = tl.dot(low, q, result, input_precision=PRECISION)
    of_key += head * keys * channels
    store(of_key, result, at, keys, channels, 0, CHANNELS)
    of_columns += head * keys * width
    store(of_columns, first, at, keys, width, 0, FIRST)
    if REST > 0:
        store(of_columns, rest, at, keys, width, FIRST, REST)
    tl.store(of_bias + head * keys + at, total_slope, mask=at < keys)
