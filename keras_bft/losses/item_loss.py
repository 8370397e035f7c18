"""Base class of the losses over an item catalogue."""

from typing import Any
from typing import NoReturn

import keras
from keras import ops

from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class ItemLoss(keras.losses.Loss):
    """Base class of losses that score states against an item table.

    An ordinary Keras loss is given predictions, here `(batch, time, items)`
    scores. A catalogue can make that tensor the largest of the whole training
    step, and a sampled loss needs only a few of its columns. So an `ItemLoss`
    is given the states and the item embeddings and computes the scores
    `states . item_embeddings` it needs, in float32 under every dtype policy.

    Subclasses implement `position_losses()`. Checking arguments, casting,
    masking padding and averaging are done here.

    Args:
        name: Name of the loss. Defaults to the class name in snake case.

    Examples:

    >>> class SquaredError(keras_bft.losses.ItemLoss):
    ...     def position_losses(self, targets, states, table, seed=None):
    ...         wanted = keras.ops.take(table, targets, axis=0)
    ...         return keras.ops.sum((states - wanted) ** 2, axis=-1)
    >>> targets = np.array([[2, 1, 0]])  # 0 is padding and has no loss.
    >>> states, table = np.ones((1, 3, 8)), np.zeros((4, 8))
    >>> float(SquaredError().from_states(targets, states, table))
    8.0
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> NoReturn:
        """Refuses to work on predictions.

        Args:
            y_true: Targets.
            y_pred: Predictions.

        Raises:
            TypeError: Always. See `from_states()`.
        """
        raise TypeError(
            f"`{type(self).__name__}` needs the item embeddings and cannot be "
            "called with predictions. Compile it with a model of "
            "`keras_bft.models`, or call `loss.from_states(targets, states, "
            "item_embeddings, seed=None)`. Received: y_pred of shape "
            f"{tuple(y_pred.shape)}"
        )

    def from_states(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the mean loss over real positions.

        Args:
            targets: Integer tensor `(batch, time)`, or any other shape that
                `states` has before its last axis. Ids are 1 to `num_items`; 0
                marks a position without a target. Ids are not checked here
                because a compiled step cannot; the data readers check them.
            states: Float tensor `(batch, time, dim)` of any float dtype.
                What stands at positions without a target has no effect and
                gets a gradient of zero.
            item_embeddings: Float tensor `(num_items + 1, dim)`. Row 0 is
                padding: it is never read and never a candidate.
            seed: A `keras.random.SeedGenerator` (or an int, which gives the
                same draws every time) for the losses that sample. Defaults
                to `None`, the global generator of Keras; inside a function
                compiled by JAX, pass a generator which the model owns.

        Returns:
            A float32 scalar, 0 (with gradients of 0) if there are no targets.

        Raises:
            ValueError: If shapes or dtypes do not fit together.
        """
        targets = ops.convert_to_tensor(targets)
        states = ops.convert_to_tensor(states)
        item_embeddings = ops.convert_to_tensor(item_embeddings)
        self._check(targets, states, item_embeddings)

        # One flat axis: a batched product with a two-dimensional right-hand
        # side costs TensorFlow one table gradient per row of the batch.
        targets = ops.reshape(ops.cast(targets, "int32"), (-1,))
        states = ops.reshape(
            ops.cast(states, "float32"), (-1, item_embeddings.shape[-1])
        )
        item_embeddings = ops.cast(item_embeddings, "float32")

        is_real = ops.not_equal(targets, 0)
        # Selected, not multiplied: a NaN times zero would still be a NaN.
        states = ops.where(ops.expand_dims(is_real, -1), states, 0.0)
        losses = self.position_losses(
            ops.where(is_real, targets, 1), states, item_embeddings, seed
        )
        total = ops.sum(ops.where(is_real, losses, 0.0))
        count = ops.sum(ops.cast(is_real, "float32"))
        return total / ops.maximum(count, 1.0)

    def position_losses(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the loss of each position. Subclasses implement this.

        Args:
            targets: int32 tensor `(positions,)` of ids from 1. Positions
                without a target come with id 1 and are masked afterwards.
            states: float32 tensor `(positions, dim)`, zero at positions
                without a target.
            item_embeddings: float32 tensor `(num_items + 1, dim)`.
            seed: As in `from_states()`.

        Returns:
            A float32 tensor `(positions,)`.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` must implement `position_losses()`."
        )

    def _check(
        self, targets: Tensor, states: Tensor, item_embeddings: Tensor
    ) -> None:
        dtype = keras.backend.standardize_dtype(targets.dtype)
        if "int" not in dtype:
            raise ValueError(
                "`targets` must hold integer item ids. "
                f"Received: targets of dtype {dtype}"
            )
        table, leading = item_embeddings.shape, states.shape[:-1]
        if len(table) != 2 or table[0] is None or table[0] < 2:
            raise ValueError(
                "`item_embeddings` must have shape `(num_items + 1, dim)` "
                "with at least one item after the padding row. "
                f"Received: item_embeddings of shape {tuple(table)}"
            )
        if len(states.shape) < 2 or states.shape[-1] != table[1]:
            raise ValueError(
                "`states` must have shape `(batch, time, dim)` with the "
                f"dimension of `item_embeddings`, {table[1]}. "
                f"Received: states of shape {tuple(states.shape)}"
            )
        if len(targets.shape) != len(leading) or any(
            target != size
            for target, size in zip(targets.shape, leading, strict=True)
            if target is not None and size is not None
        ):
            raise ValueError(
                "`targets` must have the shape of `states` without its last "
                f"axis, {tuple(leading)}. "
                f"Received: targets of shape {tuple(targets.shape)}"
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the loss."""
        return {"name": self.name}


def target_scores(
    targets: Tensor, states: Tensor, item_embeddings: Tensor
) -> Tensor:
    """Returns the score of each position's target.

    Args:
        targets: Integer tensor `(positions,)`.
        states: Float tensor `(positions, dim)`.
        item_embeddings: Float tensor `(num_items + 1, dim)`.

    Returns:
        A tensor `(positions,)`.
    """
    return ops.sum(states * ops.take(item_embeddings, targets, axis=0), axis=-1)
