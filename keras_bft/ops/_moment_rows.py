"""The sums of `softmax_moments` over the keys, of some rows at a time."""

from typing import NamedTuple

from keras import ops

from keras_bft.ops._casting import cast
from keras_bft.ops._casting import float32
from keras_bft.ops._row_steps import Arrays
from keras_bft.typing import Tensor

# Logit of keys that may not be seen. Logits are float32.
MASKED = -1.0e9


class MomentRows(NamedTuple):
    """What is summed of a row, and its gradient.

    Attributes:
        groups: Number of query heads that share a key head.
        causal: See `softmax_moments`, like the next three.
        statistics: See there.
        estimated: See there.
        differentiate: See there.
        scale: What inverted dropout multiplies the weights that it leaves by,
            or `None` without it.
    """

    groups: int
    causal: bool
    statistics: bool
    estimated: int
    differentiate: bool
    scale: float | None

    def sums(self, rows: Arrays, keys: Arrays) -> Arrays:
        """Sums, squared weights and estimate, as far as they are wanted.

        Args:
            rows: `query`, and what is there of `visible`, `kept` and
                `position`, `(., ., rows, .)`.
            keys: `key` and `columns`, and what is there of `bias` and
                `visible_keys`, `(., ., S, .)`.

        Returns:
            Arrays of rows, with the log of each row's sum of exponentials.
        """
        columns = keys["columns"]
        logits = float32(ops.matmul(rows["query"], swap(keys["key"])))
        if "bias" in keys:
            logits = logits + swap(keys["bias"])
        visible = self._visible(rows, keys)
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
        if self.scale is not None:
            weights = ops.where(rows["kept"], weights, 0.0)
            inverse = inverse * self.scale
        if self.scale is not None or not self.statistics:
            first = columns[..., : self.estimated]
            sums = ops.matmul(cast(weights, dtype), first)
            parts["estimate"] = sums * cast(inverse, dtype)
        return parts

    def gradients(self, rows: Arrays, keys: Arrays) -> tuple[Arrays, Arrays]:
        """Gradients of the query, by row, and of key, columns and bias.

        The weights are computed keys first. XLA would else find those of the
        forward pass to be the same, and keep them until here.

        Args:
            rows: As in `sums`, with its results, and `slope`, the gradient of
                what is summed.
            keys: As in `sums`.
        """
        query, slope = rows["query"], rows["slope"]
        key, columns = keys["key"], keys["columns"]
        logits = float32(ops.matmul(key, swap(query)))
        if "bias" in keys:
            logits = logits + keys["bias"]
        visible = self._visible(rows, keys)
        if visible is not None:
            logits = ops.where(swap(visible), logits, MASKED)
        weights = ops.exp(logits - swap(rows["log_total"]))

        # The gradient of the weights, and its mean over the keys.
        slopes, mean, of_columns = [], [], []
        full = self.statistics and self.differentiate
        width = columns.shape[-1] if full else self.estimated
        if self.scale is None or full:
            first, values = slope[..., :width], columns[..., :width]
            sums = rows["sums" if self.statistics else "estimate"]
            mean.append(_dot(first, sums[..., :width]))
            slopes.append(float32(ops.matmul(values, swap(first))))
            of_columns.append(ops.matmul(cast(weights, first.dtype), first))
        if full:
            twice = 2.0 * slope[..., width : width + 1]
            mean.append(twice * rows["squares"])
            slopes.append(weights * swap(twice))
        if self.scale is not None:
            last, kept = slope[..., -self.estimated :], swap(rows["kept"])
            mean.append(_dot(last, rows["estimate"]))
            last = last * self.scale
            values = columns[..., : self.estimated]
            of_kept = float32(ops.matmul(values, swap(last)))
            slopes.append(ops.where(kept, of_kept, 0.0))
            survivors = cast(ops.where(kept, weights, 0.0), last.dtype)
            missing = width - self.estimated
            of_columns.append(pad(ops.matmul(survivors, last), 3, missing))
        of_logits = weights * (sum(slopes) - swap(float32(sum(mean))))
        low = cast(of_logits, key.dtype)
        of_keys = {"key": ops.matmul(low, query), "columns": sum(of_columns)}
        if "bias" in keys:
            of_keys["bias"] = ops.sum(of_logits, axis=-1, keepdims=True)
        return {"query": ops.matmul(swap(low), key)}, of_keys

    def _visible(self, rows: Arrays, keys: Arrays) -> Tensor | None:
        """`(., ., rows or 1, S)`, or `None` where all is seen."""
        visible = rows.get("visible")
        if "visible_keys" in keys:
            visible = swap(keys["visible_keys"])
        if not self.causal:
            return visible
        position = ops.arange(ops.shape(keys["key"])[2], dtype="int32")
        earlier = rows["position"] >= position
        return earlier if visible is None else ops.logical_and(visible, earlier)


def swap(x: Tensor) -> Tensor:
    """Swaps the last two axes."""
    return ops.transpose(x, (0, 1, 3, 2))


def pad(x: Tensor, axis: int, count: int) -> Tensor:
    """Zeros after the entries of an axis."""
    if count == 0:
        return x
    widths = [[0, 0] for _ in x.shape]
    widths[axis][1] = count
    return ops.pad(x, widths)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return ops.sum(x * y, axis=-1, keepdims=True)
