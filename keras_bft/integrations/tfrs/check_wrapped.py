"""A check that no Keras 3 object was put into a Keras 2 model as it is."""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

_KERAS_3 = (
    keras.Variable,
    keras.layers.Layer,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
)


def check_wrapped(model: Any) -> None:
    """Raises an error if a Keras 3 object is in a model of `tf.keras` 2.

    Without `Keras3Layer` around it such an object is not trained, or its
    weights are not in the files, and nothing says so. Call this once, after
    the model is made. It looks at the attributes of the model and of all
    layers, tasks, metrics and indices in it, lists and dictionaries included;
    what only a function refers to it cannot see.

    Args:
        model: A `tfrs.Model`, or any other `tf.Module`.

    Raises:
        TypeError: If there is one. All are named.

    Example:

    >>> model = tf.keras.Sequential()
    >>> model.query_tower = keras.layers.Dense(2)
    >>> check_wrapped(model)
    Traceback (most recent call last):
        ...
    TypeError: ...query_tower, a Keras 3 Dense...
    """
    found = [
        f"{path}, a Keras 3 {type(value).__name__}"
        for path, value in _keras_3_objects(model, type(model).__name__, set())
    ]
    if found:
        raise TypeError(
            "A model of `tf.keras` 2 loses the weights of Keras 3 objects "
            "that it holds as they are. Wrap layers and models in "
            "`keras_bft.integrations.tfrs.Keras3Layer`; metrics and "
            f"optimizers come from `tf.keras`. Received: {'; '.join(found)}"
        )


def _keras_3_objects(
    value: Any, path: str, seen: set[int]
) -> Iterator[tuple[str, Any]]:
    """Yields the path and the object, for each in `value`."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, _KERAS_3):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _keras_3_objects(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _keras_3_objects(item, f"{path}[{index}]", seen)
    elif isinstance(value, tf.Module):
        # A name that says where it is comes before TensorFlow's own lists.
        for name, item in sorted(vars(value).items(), key=_is_bookkeeping):
            yield from _keras_3_objects(item, f"{path}.{name}", seen)


def _is_bookkeeping(attribute: tuple[str, Any]) -> bool:
    return attribute[0].startswith("_self_")
