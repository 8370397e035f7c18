"""Negatives drawn for each position, shared by the binary losses."""

import numbers
from typing import Any

import keras
from keras import ops

from keras_bft.typing import Tensor

# Negatives whose embeddings are gathered at a time.
_CHUNK = 32


def check_num_negatives(num_negatives: Any) -> int:
    """Returns the number of negatives as an int, or raises.

    Args:
        num_negatives: Number of negatives.

    Returns:
        The number.

    Raises:
        ValueError: If it is not a positive integer.
    """
    if (
        not isinstance(num_negatives, numbers.Integral)
        or isinstance(num_negatives, bool)
        or num_negatives < 1
    ):
        raise ValueError(
            "`num_negatives` must be a positive integer. "
            f"Received: num_negatives={num_negatives!r}"
        )
    return int(num_negatives)


def draw_other_items(
    targets: Tensor, num_items: int, num_negatives: int, seed: Any = None
) -> Tensor:
    """Draws items uniformly, with replacement, from all but the target.

    Args:
        targets: int32 tensor `(positions,)` of ids from 1 to `num_items`.
        num_items: Number of items, at least 2.
        num_negatives: Number of draws for each position.
        seed: Seed generator of Keras, int or `None`.

    Returns:
        int32 tensor `(positions, num_negatives)`.

    Raises:
        ValueError: If there is no item besides the target.
    """
    if num_items < 2:
        raise ValueError(
            "Negatives need at least two items in the catalogue. "
            f"Received: num_items={num_items}"
        )
    # Ids of the other `num_items - 1` items once the target is taken out;
    # those from the target on are shifted by one to skip it.
    draws = keras.random.randint(
        (ops.shape(targets)[0], num_negatives), 1, num_items, "int32", seed
    )
    return draws + ops.cast(draws >= ops.expand_dims(targets, 1), "int32")


def negative_losses(
    states: Tensor, item_embeddings: Tensor, negatives: Tensor
) -> Tensor:
    """Returns `-sum_j log(1 - sigmoid(score_j))` over a position's negatives.

    The gathered embeddings, `dim` numbers for each negative of each position,
    would be the largest tensor of a training step. They are gathered for a few
    negatives at a time and, where that takes several rounds, gathered again in
    the backward pass instead of being kept for it.

    Args:
        states: Float tensor `(positions, dim)`.
        item_embeddings: Float tensor `(num_items + 1, dim)`.
        negatives: Integer tensor `(positions, num_negatives)`.

    Returns:
        A tensor `(positions,)`.
    """
    num_negatives = negatives.shape[1]
    if num_negatives <= _CHUNK:
        return _chunk_losses(states, item_embeddings, negatives)

    def rematerialized(chunk: Tensor) -> Tensor:
        return keras.remat(
            lambda states, table: _chunk_losses(states, table, chunk)
        )(states, item_embeddings)

    num_chunks, rest = divmod(num_negatives, _CHUNK)
    chunks = ops.reshape(negatives[:, rest:], (-1, num_chunks, _CHUNK))
    # A loop of the backend: unrolled, XLA would keep all rounds alive at once.
    losses = ops.sum(
        ops.map(rematerialized, ops.transpose(chunks, (1, 0, 2))), axis=0
    )
    if rest:
        losses = losses + _chunk_losses(
            states, item_embeddings, negatives[:, :rest]
        )
    return losses


def _chunk_losses(
    states: Tensor, item_embeddings: Tensor, negatives: Tensor
) -> Tensor:
    gathered = ops.take(item_embeddings, negatives, axis=0)
    scores = ops.einsum("pd,pkd->pk", states, gathered)
    # -log(1 - sigmoid(x)) = softplus(x)
    return ops.sum(ops.softplus(scores), axis=-1)
