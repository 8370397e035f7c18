"""Gains, precisions and weights of every layer for one batch."""

from collections.abc import Collection
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft._extras import import_extra
from keras_bft.diagnostics._padding import real_tokens
from keras_bft.layers import BFTHSTULayer
from keras_bft.layers import BFTLayer
from keras_bft.layers import KalmanResidual
from keras_bft.layers._trace import listening

# Values with a query and a key position, which have no place in a table of
# tokens, and the network's own update of the state.
_NOT_IN_TABLE = ("kriging_weights", "attention_weights", "update")


class Trace(dict[str, np.ndarray]):
    """Arrays by name, as `trace` returns them, and a table of their means.

    A name is the path of the layer that computed the value, a slash and the
    value. Where a layer is called again, its names continue with `:1`, `:2`
    and so on. Log-precisions are natural logarithms.

    | part of the layer | value | shape |
    |---|---|---|
    | `attention` | `kriging_weights` | `(B, H, T, S)` |
    | | `effective_sample_size` | `(B, T, H, 1)` |
    | | `observation_log_precision` | `(B, T, D)` or `(B, T, 1)` |
    | `residual` | `prior_log_precision`, `gain` (from 0 to 1) and
      `log_precision` after the update | `(B, T, D)` or `(B, T, 1)` |
    | `feed_forward` | `update` of the state | `(B, T, D)` |
    | | `log_precision`, the prediction | `(B, T, D)` or `(B, T, 1)` |
    | | `log_process_noise` | `(D,)` or `(1,)` |

    `BFTHSTULayer` has no feed-forward network: what it observes, predicts and
    its process noise stand under its own name. Attention without the filter
    has `attention_weights`, and gated attention its `gate`.
    """

    def __init__(self) -> None:
        super().__init__()
        # By name: the filter layer, which of its calls, the table's column.
        self._places: dict[str, tuple[str, int, str]] = {}

    def by_layer(self) -> dict[tuple[str, int], dict[str, np.ndarray]]:
        """The arrays of each filter layer together.

        Returns:
            Arrays by the value, `log_precision` being named
            `posterior_log_precision` after the update and
            `predicted_log_precision` after the prediction; by the path of the
            layer and the number of its call, from 0.
        """
        layers: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        for name, values in self.items():
            layer, call, column = self._places[name]
            layers.setdefault((layer, call), {})[column] = values
        return layers

    def token_means(self) -> dict[tuple[str, int], dict[str, np.ndarray]]:
        """Means over channels and heads, of what is not attention weights.

        Returns:
            Arrays `(B, T)`, as in `by_layer`.
        """
        return {
            place: {
                column: self._token_mean(column, x)
                for column, x in values.items()
                if column not in _NOT_IN_TABLE
            }
            for place, values in self.by_layer().items()
        }

    def _token_mean(self, column: str, x: np.ndarray) -> np.ndarray:
        if column == "log_process_noise":
            x = np.broadcast_to(x, (*self._shape(), len(x)))
        mean: np.ndarray = x.reshape(*x.shape[:2], -1).mean(axis=-1)
        return mean

    def to_dataframe(self, padding_mask: Any = None, **columns: Any) -> Any:
        """A row for each token and layer, with means over channels and heads.

        Log-precisions are averaged as logarithms. Attention weights have two
        positions and are left out: they are entries of this dictionary.

        Args:
            padding_mask: `(B, T)`, true at real tokens; the others get no
                row. Defaults to all.
            **columns: Further arrays `(B, T)` by the name of their column,
                such as the ids of the items or how often each was seen.

        Returns:
            A `pandas.DataFrame` (the extra `data`) with the columns `layer`,
            `call` (0, and 1, 2 ... where a layer is called again), `example`,
            `position`, those of `columns`, and, where a layer has them,
            `prior_log_precision`, `observation_log_precision`, `gain`,
            `posterior_log_precision`, `predicted_log_precision`,
            `log_process_noise`, `effective_sample_size` and `gate`.

        Raises:
            ValueError: If an array has another shape, or a name is taken.

        Example:

        >>> items = np.array([[3, 5, 7, 0]])
        >>> model = keras_bft.models.SASRec(num_items=20, max_length=4)
        >>> traced = keras_bft.diagnostics.trace(model, items)
        >>> table = traced.to_dataframe(padding_mask=items != 0, item=items)
        >>> len(table)
        6
        >>> table.groupby("layer")["gain"].mean().index.tolist()
        ['block_0', 'block_1']
        """
        pandas = import_extra("pandas", "data")
        means = self.token_means()
        taken = {"layer", "call", "example", "position"}.union(*means.values())
        shape = self._shape()
        given = {name: np.asarray(array) for name, array in columns.items()}
        for name, array in given.items():
            if array.shape != shape:
                raise ValueError(
                    f"`{name}` must have the shape {shape}, a number for each "
                    f"token. Received: {name} of shape {array.shape}"
                )
            if name in taken:
                raise ValueError(
                    f"A column must have another name than {sorted(taken)}. "
                    f"Received: {name}"
                )
        real = real_tokens(None, padding_mask, shape)
        example, position = np.nonzero(real)
        parts = [
            pandas.DataFrame(
                {
                    "layer": layer,
                    "call": call,
                    "example": example,
                    "position": position,
                    **{name: array[real] for name, array in given.items()},
                    **{name: array[real] for name, array in values.items()},
                }
            )
            for (layer, call), values in means.items()
        ]
        return pandas.concat(parts, ignore_index=True)

    def _shape(self) -> tuple[int, int]:
        """Numbers of examples and of positions."""
        for name, values in self.items():
            column = self._places[name][2]
            if column in ("kriging_weights", "attention_weights"):
                return values.shape[0], values.shape[2]
            if column != "log_process_noise":
                return values.shape[0], values.shape[1]
        raise ValueError(
            "The model must have a layer of `keras_bft.layers` that reports "
            f"what it computes. Received: a trace of {sorted(self)}"
        )


def trace(
    model: Any,
    inputs: Any,
    values: Collection[str] | None = None,
    **kwargs: Any,
) -> Trace:
    """Calls a model on a batch and returns what its filter layers computed.

    The call is eager, and the model and its outputs stay as they are. Any
    model with layers of `keras_bft.layers` works: those of
    `keras_bft.models`, Functional, Sequential and subclassed ones, and a
    layer alone.

    Args:
        model: A built Keras model or layer.
        inputs: Its inputs, one batch.
        values: Names of the values to keep, such as `{"gain"}`: the part of a
            name after the last slash. Defaults to all. Attention weights take
            most of the memory, and are not computed where they are not kept.
        **kwargs: Other arguments of the call.

    Returns:
        A `Trace`: a dictionary of NumPy arrays by name, in the order of
        computation, such as `"block_0/residual/gain"`, with `to_dataframe()`.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> traced = keras_bft.diagnostics.trace(model, np.array([[3, 5, 7, 2]]))
    >>> traced["block_1/residual/gain"].shape
    (1, 4, 64)

    References:
        - [Bayesian Filtering Transformers](https://arxiv.org/abs/2605.18832)
    """
    with listening(values) as records:
        model(inputs, **kwargs)
    paths: dict[int, tuple[str, str]] = {}
    for path, layer, owner in _walk(model):
        paths.setdefault(id(layer), (path, owner))
    calls: dict[int, int] = {}
    traced = Trace()
    for layer, reported in records:
        call = calls[id(layer)] = calls.get(id(layer), -1) + 1
        path, owner = paths[id(layer)]
        for name, value in reported.items():
            full = f"{path}/{name}{f':{call}' if call else ''}"
            traced[full] = _to_numpy(value)
            traced._places[full] = (owner, call, _column(layer, name))
    return traced


def _column(layer: Any, name: str) -> str:
    if name != "log_precision":
        return name
    update = isinstance(layer, KalmanResidual)
    return "posterior_log_precision" if update else "predicted_log_precision"


def _walk(
    layer: Any, prefix: str = "", owner: str | None = None
) -> Iterator[tuple[str, Any, str]]:
    """Path and filter layer of every layer inside a layer, and of itself."""
    root = not prefix
    if root:
        owner = layer.name if isinstance(layer, _FILTERS) else None
    for child in getattr(layer, "_layers", []):
        path = f"{prefix}{child.name}"
        inside = owner
        if inside is None and isinstance(child, _FILTERS):
            inside = path
        yield path, child, inside or path
        yield from _walk(child, f"{path}/", inside)
    if root:
        yield layer.name, layer, layer.name


_FILTERS = (BFTLayer, BFTHSTULayer)


def _to_numpy(value: Any) -> np.ndarray:
    value = ops.stop_gradient(ops.convert_to_tensor(value))
    if keras.backend.standardize_dtype(value.dtype) in ("float16", "bfloat16"):
        value = ops.cast(value, "float32")
    return ops.convert_to_numpy(value)
