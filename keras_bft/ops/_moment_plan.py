"""The sums of `softmax_moments` and their gradient, block by block."""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.ops._own_gradient import with_own_gradient
from keras_bft.ops._row_steps import Arrays
from keras_bft.ops._row_steps import in_steps
from keras_bft.ops.precision import float32
from keras_bft.typing import Tensor

# Logit of keys that may not be seen. Logits are float32.
MASKED = -1.0e9

# Queries whose weights are held at a time. Fewer make more products of smaller
# matrices.
BLOCK = 128

# Blocks of a causal sequence, each with the keys up to its last query: with
# four, five eighths of the weights are computed. More save little and take
# long to compile.
CAUSAL_BLOCKS = 4

# What is summed, in the order in which it is returned.
PARTS = ("sums", "squares", "estimate")


class WeightDropout(NamedTuple):
    """Which weights dropout leaves, and what becomes of them.

    Attributes:
        kept: `(B, Hk, T * H / Hk, S)` bool, rows as `weight_rows` says.
        rate: Share of weights dropped, for inverted dropout: those left are
            divided by `1 - rate`, and the statistics are those of all
            weights. `None` renormalises them: a dropped key is not seen.
    """

    kept: Tensor
    rate: float | None


class _Block(NamedTuple):
    """Rows `start:stop` and the number of keys they may see."""

    start: int
    stop: int | None
    keys: int | None


class MomentPlan:
    """The sums and their gradient on arrays by key head, `(B, Hk, rows, C)`.

    Args:
        groups: Number of query heads that share a key head.
        lengths: Numbers of queries and keys, `None` where not known.
        mask: `(B or 1, Hk or 1, rows or 1, S)` bool, or `None`.
        causal: See `softmax_moments`, like the others.
        statistics: See there.
        estimated: See there.
        differentiate: See there.
        dropped: Inverted dropout, see there.
        block: See there.
    """

    def __init__(
        self,
        groups: int,
        lengths: tuple[int | None, int | None],
        mask: Tensor | None,
        causal: bool,
        statistics: bool,
        estimated: int,
        differentiate: bool,
        dropped: WeightDropout | None,
        block: int | None,
    ) -> None:
        self.groups = groups
        self.mask = mask
        self.causal = causal
        self.statistics = statistics
        self.estimated = estimated
        self.differentiate = differentiate
        self.dropped = dropped
        self.scale = 1.0
        if dropped is not None and dropped.rate is not None:
            self.scale = 1.0 / (1.0 - dropped.rate)
        self.step = None if block is None else block * groups
        self.blocks = list(_blocks(groups, *lengths, causal, block))

    def moments(self, *inputs: Tensor) -> Tensor:
        """What is summed, side by side.

        Args:
            *inputs: Scaled queries `(B, Hk, rows, C)`, keys `(B, Hk, S, C)`,
                columns `(B, Hk, S, M)` and, if there is one, the bias
                `(B, Hk or 1, S)`.

        Returns:
            `(B, Hk, rows, .)`: the sums, the squared weights and, with
            dropout, the estimate; without statistics the estimate alone.
        """

        @with_own_gradient
        def moments(*inputs: Tensor) -> tuple[Tensor, Any]:
            outputs = [self._forward(block, *inputs) for block in self.blocks]
            kept = {
                name: _join([output[name] for output in outputs])
                for name in outputs[0]
            }
            parts = [kept[name] for name in PARTS if name in kept]

            def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
                # PyTorch gives the inputs too, and this by name.
                upstream = args[0] if upstream is None else upstream
                return self._gradient(upstream, kept, *inputs)

            result = parts[0]
            if len(parts) > 1:
                result = ops.concatenate(parts, axis=-1)
            return result, gradient

        return moments(*inputs)

    def _rows(self, block: _Block, **arrays: Tensor) -> Arrays:
        """What each row of a block has: its part of the arrays, and masks."""
        if self.dropped is not None:
            arrays["kept"] = self.dropped.kept[..., : block.keys]
        if self.mask is not None and self.mask.shape[2] != 1:
            arrays["visible"] = self.mask[..., : block.keys]
        rows = {
            name: array[:, :, block.start : block.stop]
            for name, array in arrays.items()
        }
        if self.causal:
            index = ops.arange(ops.shape(rows["query"])[2], dtype="int32")
            position = (index + block.start) // self.groups
            rows["position"] = position[None, None, :, None]
        return rows

    def _visible(self, rows: Arrays, num_keys: Any) -> Tensor | None:
        visible = rows.get("visible")
        if self.mask is not None and visible is None:
            visible = self.mask[..., :num_keys]
        if self.causal:
            key_position = ops.arange(num_keys, dtype="int32")
            earlier = rows["position"] >= key_position
            if visible is None:
                return earlier
            visible = ops.logical_and(visible, earlier)
        return visible

    def _forward(
        self,
        block: _Block,
        query: Tensor,
        key: Tensor,
        columns: Tensor,
        bias: Tensor | None = None,
    ) -> Arrays:
        """Parts of a block, and the log of each row's sum of exponentials."""
        key, columns = key[:, :, : block.keys], columns[:, :, : block.keys]
        bias = None if bias is None else bias[:, :, None, : block.keys]

        def sums(rows: Arrays) -> tuple[Arrays, Arrays]:
            return self._sums(rows, key, columns, bias), {}

        return in_steps(sums, self._rows(block, query=query), self.step)[0]

    def _sums(
        self, rows: Arrays, key: Tensor, columns: Tensor, bias: Tensor | None
    ) -> Arrays:
        logits = float32(ops.matmul(rows["query"], _swap(key)))
        if bias is not None:
            logits = logits + bias
        visible = self._visible(rows, ops.shape(key)[2])
        if visible is not None:
            logits = ops.where(visible, logits, MASKED)
        top = ops.max(logits, axis=-1, keepdims=True)
        weights = ops.exp(logits - top)
        total = ops.sum(weights, axis=-1, keepdims=True)
        seen = top > 0.5 * MASKED
        inverse = ops.where(seen, 1.0 / total, 0.0)
        log_total = ops.where(seen, top + ops.log(total), -MASKED)
        dtype = columns.dtype
        parts = {"log_total": log_total}
        if self.statistics:
            sums = ops.matmul(cast(weights, dtype), columns)
            parts["sums"] = sums * cast(inverse, dtype)
            squares = ops.sum(ops.square(weights), axis=-1, keepdims=True)
            squares = squares * ops.square(inverse)
            parts["squares"] = cast(squares, dtype)
        if self.dropped is not None:
            weights = ops.where(rows["kept"], weights, 0.0)
            inverse = inverse * self.scale
        if self.dropped is not None or not self.statistics:
            first = columns[..., : self.estimated]
            sums = ops.matmul(cast(weights, dtype), first)
            parts["estimate"] = sums * cast(inverse, dtype)
        return parts

    def _gradient(
        self,
        upstream: Tensor,
        kept: Arrays,
        query: Tensor,
        key: Tensor,
        columns: Tensor,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Gradients of the inputs. The weights are computed again."""
        of_queries: list[Tensor] = []
        totals: Arrays = {}
        for block in self.blocks:
            keys = key[:, :, : block.keys]
            values = columns[:, :, : block.keys]
            key_bias = None if bias is None else bias[:, :, : block.keys, None]

            def gradients(
                rows: Arrays,
                keys: Tensor = keys,
                values: Tensor = values,
                key_bias: Tensor | None = key_bias,
            ) -> tuple[Arrays, Arrays]:
                return self._row_gradients(rows, keys, values, key_bias)

            rows = self._rows(block, query=query, slope=upstream, **kept)
            of_query, of_keys = in_steps(gradients, rows, self.step)
            of_queries.append(of_query["query"])
            missing = 0 if block.keys is None else key.shape[2] - block.keys
            for name, value in of_keys.items():
                value = _pad(value, 2, missing)
                totals[name] = totals[name] + value if name in totals else value
        of_columns = totals["columns"]
        unused = columns.shape[-1] - of_columns.shape[-1]
        slopes = [_join(of_queries), totals["key"], _pad(of_columns, 3, unused)]
        if bias is not None:
            of_bias = totals["bias"]
            if bias.shape[1] == 1:
                of_bias = ops.sum(of_bias, axis=1, keepdims=True)
            slopes.append(of_bias)
        return tuple(slopes)

    def _row_gradients(
        self, rows: Arrays, key: Tensor, columns: Tensor, bias: Tensor | None
    ) -> tuple[Arrays, Arrays]:
        """Gradients of the query, by row, and of key, columns and bias.

        The weights are computed keys first. XLA would else find those of the
        forward pass to be the same, and keep them until here.
        """
        query, slope = rows["query"], rows["slope"]
        logits = float32(ops.matmul(key, _swap(query)))
        if bias is not None:
            logits = logits + bias
        visible = self._visible(rows, ops.shape(key)[2])
        if visible is not None:
            logits = ops.where(_swap(visible), logits, MASKED)
        weights = ops.exp(logits - _swap(rows["log_total"]))

        # The gradient of the weights, and its mean over the keys.
        slopes, mean, of_columns = [], [], []
        full = self.statistics and self.differentiate
        width = columns.shape[-1] if full else self.estimated
        if self.dropped is None or full:
            first, values = slope[..., :width], columns[..., :width]
            sums = rows["sums" if self.statistics else "estimate"]
            mean.append(_dot(first, sums[..., :width]))
            slopes.append(float32(ops.matmul(values, _swap(first))))
            of_columns.append(ops.matmul(cast(weights, first.dtype), first))
        if full:
            twice = 2.0 * slope[..., width : width + 1]
            mean.append(twice * rows["squares"])
            slopes.append(weights * _swap(twice))
        if self.dropped is not None:
            last, kept = slope[..., -self.estimated :], _swap(rows["kept"])
            mean.append(_dot(last, rows["estimate"]))
            last = last * self.scale
            values = columns[..., : self.estimated]
            of_kept = float32(ops.matmul(values, _swap(last)))
            slopes.append(ops.where(kept, of_kept, 0.0))
            survivors = cast(ops.where(kept, weights, 0.0), last.dtype)
            missing = width - self.estimated
            of_columns.append(_pad(ops.matmul(survivors, last), 3, missing))
        of_logits = weights * (sum(slopes) - _swap(float32(sum(mean))))
        low = cast(of_logits, key.dtype)
        of_keys = {"key": ops.matmul(low, query), "columns": sum(of_columns)}
        if bias is not None:
            of_keys["bias"] = ops.sum(of_logits, axis=-1)
        return {"query": ops.matmul(_swap(low), key)}, of_keys


def _blocks(
    groups: int,
    length: int | None,
    num_keys: int | None,
    causal: bool,
    block: int | None,
) -> Iterator[_Block]:
    """Blocks of the rows of a causal sequence, else one of all rows.

    A block may take several steps. Of many blocks a compiler would start all
    before it ends one.
    """
    if (
        not causal
        or block is None
        # An export leaves lengths open: they are then no ints.
        or not isinstance(length, int)
        or not isinstance(num_keys, int)
        or length <= block
    ):
        yield _Block(0, None, None)
        return
    steps = -(-length // block)
    size = block * -(-steps // CAUSAL_BLOCKS)
    for start in range(0, length, size):
        stop = min(start + size, length)
        yield _Block(start * groups, stop * groups, stop)


def _swap(x: Tensor) -> Tensor:
    """Swaps the last two axes."""
    return ops.transpose(x, (0, 1, 3, 2))


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return ops.sum(x * y, axis=-1, keepdims=True)


def _pad(x: Tensor, axis: int, count: int) -> Tensor:
    """Zeros after the entries of an axis."""
    if count == 0:
        return x
    widths = [[0, 0] for _ in x.shape]
    widths[axis][1] = count
    return ops.pad(x, widths)


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=2)
