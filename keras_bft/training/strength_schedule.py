"""Raising the filter strength of a model while it trains."""

import math
from typing import Any

import keras

from keras_bft.layers import BFTHSTULayer
from keras_bft.layers import BFTLayer
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.training._jax_state import fill_variables

SHAPES = ("linear", "cosine")


class StrengthSchedule(keras.callbacks.Callback):
    """Moves the strength of all filter layers from one value to another.

    A pretrained decoder is converted at strength 0, where it computes what it
    did before. This leads it to the full filter as it trains.

    The strength follows from the epoch, or from the optimizer's count of
    steps, so a training that is continued with `initial_epoch` (and, for
    steps, with its optimizer's state) goes on where it was.

    With `steps` the strength changes before each step. On JAX this hands the
    state of the training back to the model each time, which takes time for
    each variable; with `epochs` it costs nothing. With `steps_per_execution`
    the strength changes once for all steps of an execution.

    Args:
        start: Strength of the first epoch or step. Defaults to `0.0`.
        end: Strength when they are over. Defaults to `1.0`.
        epochs: Number of epochs until `end` is reached: epoch `epochs`,
            counted from 0, is the first that has it.
        steps: The same in steps of the optimizer. Either this or `epochs`.
        shape: `"linear"` or `"cosine"`, which starts and ends slowly. Defaults
            to `"linear"`.

    Raises:
        ValueError: If an argument is outside its domain. When the training
            begins, if the model has no filter layer or learns a strength.

    Example:

    >>> schedule = keras_bft.training.StrengthSchedule(epochs=4)
    >>> [schedule.strength(epoch) for epoch in (0, 1, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """

    def __init__(
        self,
        start: float = 0.0,
        end: float = 1.0,
        epochs: int | None = None,
        steps: int | None = None,
        shape: str = "linear",
    ) -> None:
        super().__init__()
        for name, value in (("start", start), ("end", end)):
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"`{name}` must be zero or more. Received: {name}={value}"
                )
        if (epochs is None) == (steps is None):
            raise ValueError(
                "Either `epochs` or `steps` must be given. Received: "
                f"epochs={epochs}, steps={steps}"
            )
        if epochs is not None:
            check_positive("epochs", epochs)
        if steps is not None:
            check_positive("steps", steps)
        check_choice("shape", shape, SHAPES)
        self.start = start
        self.end = end
        self.epochs = epochs
        self.steps = steps
        self.shape = shape
        self._variables: list[keras.Variable] = []

    def strength(self, position: int) -> float:
        """Strength at an epoch or step, counted from 0."""
        share = min(position / (self.epochs or self.steps or 1), 1.0)
        if self.shape == "cosine":
            share = 0.5 - 0.5 * math.cos(math.pi * share)
        return self.start + (self.end - self.start) * share

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds the strengths."""
        self._variables = [
            layer.strength
            for layer in self.model._flatten_layers()
            if isinstance(layer, (BFTLayer, BFTHSTULayer)) and layer.bayesian
        ]
        if not self._variables:
            raise ValueError(
                "The model has no filter layer whose strength could change. "
                f"Received: a model named {self.model.name!r}"
            )
        learned = [v.path for v in self._variables if v.trainable]
        if learned:
            raise ValueError(
                "A strength that is learned follows no schedule. Build the "
                f"layers with `trainable_strength=False`. Received: {learned}"
            )

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Sets the strength of an epoch."""
        if self.epochs is not None:
            self._assign(self.strength(epoch))

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Sets the strength of a step."""
        if self.steps is None:
            return
        fill_variables(self.model)
        iterations = keras.ops.convert_to_numpy(self.model.optimizer.iterations)
        self._assign(self.strength(int(iterations)))

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Reports the strength beside the loss, as `"strength"`."""
        if logs is not None:
            value = keras.ops.convert_to_numpy(self._variables[0].value)
            logs["strength"] = float(value)

    def _assign(self, strength: float) -> None:
        for variable in self._variables:
            variable.assign(strength)
