"""A learning rate of its own for what the precisions are learned with."""

from typing import Any

import keras

from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import PrecisionMLP
from keras_bft.training.scaled_schedule import ScaledSchedule


def precision_variables(model: keras.Model) -> list[keras.Variable]:
    """Trainable variables that the precisions are learned with.

    Those of `PrecisionEmbedding` and `PrecisionMLP`, process noise and
    strengths.

    Args:
        model: A built model with layers of `keras_bft.layers`.

    Returns:
        The variables, in the order of the model's.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> _ = model(np.array([[3, 5]]))
    >>> [v.name for v in keras_bft.training.precision_variables(model)]
    ['log_precision', 'log_process_noise']
    """
    found = set()
    for layer in model._flatten_layers():
        variables = [
            getattr(layer, name, None)
            for name in ("log_process_noise", "strength")
        ]
        if isinstance(layer, (PrecisionEmbedding, PrecisionMLP)):
            variables += layer.variables
        found |= {id(v) for v in variables if isinstance(v, keras.Variable)}
    return [v for v in model.trainable_variables if id(v) in found]


def with_precision_learning_rate(
    optimizer: keras.optimizers.Optimizer,
    model: keras.Model,
    multiplier: float,
) -> keras.optimizers.MultiOptimizer:
    """Multiplies the learning rate of the variables of the precisions.

    Two optimizers of the same kind and settings, as
    `keras.optimizers.MultiOptimizer` runs them: one for the variables of
    `precision_variables`, whose learning rate or schedule is multiplied, and
    the given one for all others. `global_clipnorm` clips each group by itself.

    Args:
        optimizer: The optimizer of the other variables. It must be new.
        model: A built model.
        multiplier: A positive number.

    Returns:
        The optimizer for `model.compile`.

    Raises:
        ValueError: If `multiplier` is not positive, the model learns no
            precision, or the optimizer is in use.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> _ = model(np.array([[3, 5]]))
    >>> optimizer = keras_bft.training.with_precision_learning_rate(
    ...     keras.optimizers.Adam(1e-3), model, 10.0)
    >>> sorted(round(float(part.learning_rate), 4)
    ...        for part in optimizer.optimizers)
    [0.001, 0.01]
    """
    if not multiplier > 0:
        raise ValueError(
            f"`multiplier` must be positive. Received: multiplier={multiplier}"
        )
    if optimizer.built:
        raise ValueError(
            "`optimizer` must be new. Received: one that is built for variables"
        )
    variables = precision_variables(model)
    if not variables:
        raise ValueError(
            "The model must be built and learn precisions. Received: a model "
            f"named {model.name!r}, which has none of their variables"
        )
    config: dict[str, Any] = optimizer.get_config()
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        config["learning_rate"] = ScaledSchedule(rate, multiplier)
    else:
        config["learning_rate"] *= multiplier
    config["name"] = f"{optimizer.name}_precision"
    scaled = type(optimizer).from_config(config)
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(
            optimizer, {variable.path: scaled for variable in variables}
        )
    )
