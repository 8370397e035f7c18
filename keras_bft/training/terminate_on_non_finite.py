"""Stopping a training at the step that spoils a weight."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers._filter_layer import check_positive
from keras_bft.training._jax_state import fill_variables


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Stops a training once a weight is no longer finite, and says which.

    `keras.callbacks.TerminateOnNaN` looks at the loss, a mean that is not
    finite one step after the weights, and ends the training as if it were
    done, so that what follows may save them. This looks at the weights and
    raises: no checkpoint is written of what is spoiled, and with
    `ResumableTraining` the last epoch that was whole is there to go on from.

    Steps whose gradients are not finite do no harm under the loss scaling of
    `mixed_float16`, which leaves them out, and are not looked at.

    Args:
        every: Number of batches after which the weights are looked at.
            Defaults to 1, which names the very step. On JAX each look hands
            the state of the training back to the model, which takes time for
            each variable.

    Raises:
        ValueError: If `every` is not a positive integer.
        FloatingPointError: In training, with the step, the weights and the
            number of their values that are not finite.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((1, 2)), np.array([[np.inf]])
    >>> stop = keras_bft.training.TerminateOnNonFinite()
    >>> try:
    ...     model.fit(x, y, verbose=0, callbacks=[stop])
    ... except FloatingPointError as error:
    ...     print("after step 1" in str(error))
    True
    """

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        check_positive("every", every)
        self.every = every
        self._batches = 0

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Notes the epoch."""
        self._epoch = epoch

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Looks at the weights, if it is time."""
        self._batches += 1
        if self._batches % self.every == 0:
            self._look(batch, logs)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Looks at the weights, before others save them."""
        if self._batches % self.every:
            self._look(None, logs)
        self._batches = 0

    def _look(self, batch: int | None, logs: dict[str, Any] | None) -> None:
        if batch is not None:
            fill_variables(self.model)
        weights = [
            weight
            for weight in self.model.weights
            if keras.backend.is_float_dtype(weight.dtype)
        ]
        finite = [ops.all(ops.isfinite(weight.value)) for weight in weights]
        if all(ops.convert_to_numpy(ops.stack(finite))):
            return
        step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        place = f"epoch {self._epoch + 1}"
        if batch is not None:
            place += f", batch {batch + 1}"
        loss = (logs or {}).get("loss")
        raise FloatingPointError(
            f"Weights are not finite after step {step} ({place}; mean loss of "
            f"the epoch so far: {loss}): {_spoilt(weights)}. Look for values "
            "that are not finite in the data, or lower the learning rate or "
            "the norm of the gradients (`clipnorm`)."
        )


def _spoilt(weights: list[Any], shown: int = 5) -> str:
    """Paths of weights that are not finite, and how much of each is not."""
    found = []
    for weight in weights:
        values = ops.convert_to_numpy(ops.cast(weight.value, "float32"))
        count = int((~np.isfinite(values)).sum())
        if count:
            found.append(f"{weight.path} ({count} of {values.size} values)")
    rest = len(found) - shown
    return ", ".join(found[:shown]) + (f" and {rest} more" if rest > 0 else "")
