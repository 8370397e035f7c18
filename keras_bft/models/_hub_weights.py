"""What the conversions from keras-hub share: refusals and weights."""

from typing import Any
from typing import NoReturn

import keras
import numpy as np
from keras import ops


def refuse(source: Any, attribute: str, value: Any, right: str) -> NoReturn:
    """Raises a `ValueError` that names an attribute of the original.

    Args:
        source: The layer or model.
        attribute: The attribute.
        value: Its value.
        right: What it must be, and why or what to do.
    """
    raise ValueError(
        f"`{attribute}` of {source.name!r} must be {right}. "
        f"Received: {attribute}={value!r}"
    )


def check_plain(source: Any) -> None:
    """Raises unless a layer or model is built and has its full weights."""
    if not source.built:
        refuse(
            source,
            "built",
            source.built,
            "True, as there are no weights before: call it, or its `build()`, "
            "once",
        )
    for layer in source._flatten_layers():
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            refuse(
                layer,
                "quantization_mode",
                mode,
                "None: convert the model before you quantize it",
            )
        if getattr(layer, "lora_enabled", False):
            refuse(
                layer,
                "lora_enabled",
                True,
                "False: save the model's weights, which merges them, load "
                "them into a new model and convert that",
            )


def check_options(
    source: Any, options: dict[str, Any], decided: dict[str, Any]
) -> None:
    """Raises if options name what the original decides itself."""
    for name in decided.keys() & options.keys():
        raise ValueError(
            f"`{name}` is decided by the original {source.name!r}, which has "
            f"{name}={decided[name]!r}. Received: {name}={options[name]!r}"
        )


def dropout_option(source: Any, rate: float, options: dict[str, Any]) -> float:
    """The dropout of the conversion."""
    if rate and "dropout" not in options:
        refuse(
            source,
            "dropout",
            rate,
            "0, because this library drops in other places, or you must say "
            "that of the conversion: convert(..., dropout=...)",
        )
    dropout: float = options.get("dropout", 0.0)
    return dropout


def variables_by_path(source: Any) -> dict[str, keras.Variable]:
    """Weights by their path inside a layer.

    A layer inside a model has the model's name in its paths, or has not.
    States of random generators are left out.
    """
    weights = {}
    for variable in source.variables:
        parts = variable.path.split("/")
        if parts[-1] != "seed_generator_state":
            inside = parts[parts.index(source.name) + 1 :]
            weights["/".join(inside)] = variable
    return weights


def copy_weights(source: Any, pairs: dict[str, Any]) -> None:
    """Gives new variables the numbers of old ones, by their path.

    Heads that keras-hub keeps on an axis of their own are put beside each
    other.

    Args:
        source: The layer of keras-hub.
        pairs: The new variables, by the path of the old inside `source`.

    Raises:
        ValueError: If the paths are not those of all its weights, or numbers
            of weights differ.
    """
    old = variables_by_path(source)
    if set(old) != set(pairs):
        raise ValueError(
            f"The weights of {source.name!r} must be {sorted(pairs)}, those "
            "of the keras-hub that this library knows. Received: "
            f"{sorted(old)}"
        )
    for path, new in pairs.items():
        array = np.asarray(ops.convert_to_numpy(old[path].value))
        if array.size != np.prod(new.shape):
            raise ValueError(
                f"`{path}` of {source.name!r} must have the size of a weight "
                f"of the shape {tuple(new.shape)}. "
                f"Received: {path} of the shape {array.shape}"
            )
        new.assign(array.reshape(new.shape))
