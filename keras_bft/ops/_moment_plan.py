"""The sums of `softmax_moments` and their gradient, block by block."""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from keras import ops

from keras_bft.ops._moment_rows import MomentRows
from keras_bft.ops._moment_rows import pad
from keras_bft.ops._own_gradient import with_own_gradient
from keras_bft.ops._row_steps import Arrays
from keras_bft.ops._row_steps import in_steps
from keras_bft.typing import Tensor

# Queries whose weights are held at a time. Fewer make more products of smaller
# matrices.
BLOCK = 128

# Blocks of a causal sequence, each with the keys up to its last query: with
# four, five eighths of the weights are computed. More save little and take
# long to compile.
CAUSAL_BLOCKS = 4

# What is summed, in the order in which it is returned.
PARTS = ("sums", "squares", "estimate")

# Arrays with a row for each key. All others have one for each query.
OF_KEYS = ("key", "columns", "bias", "visible_keys")


class _Block(NamedTuple):
    """Rows `start:stop` and the number of keys they may see."""

    start: int
    stop: int | None
    keys: int | None


class MomentPlan:
    """The sums and their gradient on arrays by key head, `(B, Hk, rows, C)`.

    Args:
        rows: What is computed of some rows.
        lengths: Numbers of queries and keys, `None` where not known.
        block: See `softmax_moments`.
    """

    def __init__(
        self,
        rows: MomentRows,
        lengths: tuple[int | None, int | None],
        block: int | None,
    ) -> None:
        self.rows = rows
        self.step = None if block is None else block * rows.groups
        self.blocks = list(_blocks(rows.groups, *lengths, rows.causal, block))

    def moments(self, arrays: Arrays) -> Tensor:
        """What is summed, side by side.

        Args:
            arrays: `query`, scaled, `(B, Hk, rows, C)`, `key` `(B, Hk, S, C)`,
                `columns` `(B, Hk, S, M)` and, where they are, `bias`
                `(B, Hk or 1, S, 1)`, `visible` `(B or 1, Hk or 1, rows, S)`
                and `visible_keys` `(B or 1, 1, S, 1)` bool, and with inverted
                dropout `kept`, as `visible`.

        Returns:
            `(B, Hk, rows, .)`: the sums, the squared weights and, with
            dropout, the estimate; without statistics the estimate alone.
        """
        names = list(arrays)

        # Masks are handed over too: what a function with a gradient of its
        # own takes from around it is gone when JAX rematerializes.
        @with_own_gradient
        def moments(*inputs: Tensor) -> tuple[Tensor, Any]:
            arrays = dict(zip(names, inputs, strict=True))
            outputs = [self._forward(block, arrays) for block in self.blocks]
            kept = {
                name: _join([output[name] for output in outputs])
                for name in outputs[0]
            }
            parts = [kept[name] for name in PARTS if name in kept]

            def gradient(*args: Tensor, upstream: Tensor | None = None) -> Any:
                # PyTorch gives the inputs too, and this by name.
                upstream = args[0] if upstream is None else upstream
                slopes = self._gradient(upstream, kept, arrays)
                return tuple(slopes.get(name) for name in names)

            result = parts[0]
            if len(parts) > 1:
                result = ops.concatenate(parts, axis=-1)
            return result, gradient

        return moments(*arrays.values())

    def _of_queries(self, block: _Block, arrays: Arrays) -> Arrays:
        """What the rows of a block have."""
        rows = {
            name: array[:, :, block.start : block.stop]
            for name, array in arrays.items()
            if name not in OF_KEYS
        }
        for name in ("visible", "kept"):
            if name in rows:
                rows[name] = rows[name][..., : block.keys]
        if self.rows.causal:
            index = ops.arange(ops.shape(rows["query"])[2], dtype="int32")
            position = (index + block.start) // self.rows.groups
            rows["position"] = position[None, None, :, None]
        return rows

    def _of_keys(self, block: _Block, arrays: Arrays) -> Arrays:
        return {
            name: arrays[name][:, :, : block.keys]
            for name in OF_KEYS
            if name in arrays
        }

    def _forward(self, block: _Block, arrays: Arrays) -> Arrays:
        """Parts of a block, and the log of each row's sum of exponentials."""
        keys = self._of_keys(block, arrays)

        def sums(rows: Arrays) -> tuple[Arrays, Arrays]:
            return self.rows.sums(rows, keys), {}

        return in_steps(sums, self._of_queries(block, arrays), self.step)[0]

    def _gradient(
        self, upstream: Tensor, kept: Arrays, arrays: Arrays
    ) -> Arrays:
        """Gradients of the inputs. The weights are computed again."""
        of_queries: list[Tensor] = []
        totals: Arrays = {}
        for block in self.blocks:
            keys = self._of_keys(block, arrays)

            def gradients(
                rows: Arrays, keys: Arrays = keys
            ) -> tuple[Arrays, Arrays]:
                return self.rows.gradients(rows, keys)

            rows = {**arrays, **kept, "slope": upstream}
            rows = self._of_queries(block, rows)
            of_query, of_keys = in_steps(gradients, rows, self.step)
            of_queries.append(of_query["query"])
            missing = 0
            if block.keys is not None:
                missing = arrays["key"].shape[2] - block.keys
            for name, value in of_keys.items():
                value = pad(value, 2, missing)
                totals[name] = totals[name] + value if name in totals else value
        unused = arrays["columns"].shape[-1] - totals["columns"].shape[-1]
        slopes = {
            **totals,
            "query": _join(of_queries),
            "columns": pad(totals["columns"], 3, unused),
        }
        if "bias" in arrays and arrays["bias"].shape[1] == 1:
            slopes["bias"] = ops.sum(slopes["bias"], axis=1, keepdims=True)
        return slopes


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


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=2)
