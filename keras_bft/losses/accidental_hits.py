"""Negatives that are what they are to be negatives of."""

from typing import Any

from keras import ops

from keras_bft.typing import Tensor

# Below every score that float32 training can meet, and finite, so that a row
# without negatives keeps finite gradients.
EXCLUDED = -1e30


def remove_accidental_hits(
    logits: Any, labels: Any, candidate_ids: Any
) -> Tensor:
    """Takes negatives that are the row's positive out of a softmax.

    With the items of a batch as each other's negatives, a frequent item is
    among the negatives of its own row. Such logits, and those of candidates
    with id 0, padding, become -1e30; the positive stays. Call it before hard
    negatives are chosen, since an accidental hit is the hardest of all.

    `keras_rs.layers.RemoveAccidentalHits` takes the same arguments and, in
    keras-rs 0.4.0, returns the logits as they were.

    Args:
        logits: Scores `(..., candidates)`.
        labels: One-hot labels of the shape of `logits`.
        candidate_ids: Integer ids, `(candidates,)` or of the shape of
            `logits`.

    Returns:
        Logits, float32, of the same shape.

    Raises:
        ValueError: If the shapes do not fit.

    Example:

    >>> logits, labels = np.zeros((2, 3)), np.eye(2, 3)
    >>> keras.ops.convert_to_numpy(
    ...     keras_bft.losses.remove_accidental_hits(logits, labels, [7, 8, 7]))
    array([[ 0.e+00,  0.e+00, -1.e+30],
           [ 0.e+00,  0.e+00,  0.e+00]], dtype=float32)
    """
    logits = ops.cast(logits, "float32")
    labels = ops.convert_to_tensor(labels)
    ids = ops.convert_to_tensor(candidate_ids)
    if not _fits(labels.shape, logits.shape) or not (
        _fits(ids.shape, logits.shape) or _fits(ids.shape, logits.shape[-1:])
    ):
        raise ValueError(
            "`labels` must have the shape of `logits`, and `candidate_ids` "
            "that or its last axis. Received: logits of shape "
            f"{tuple(logits.shape)}, labels of shape {tuple(labels.shape)}, "
            f"candidate_ids of shape {tuple(ids.shape)}"
        )
    positive = ops.expand_dims(ops.argmax(labels, axis=-1), -1)
    if len(ids.shape) == 1:
        positive_ids = ops.take(ids, positive)
    else:
        positive_ids = ops.take_along_axis(ids, positive, axis=-1)
    removed = ops.logical_or(ops.equal(ids, positive_ids), ops.equal(ids, 0))
    removed = ops.logical_and(removed, ops.equal(labels, 0))
    return ops.where(removed, EXCLUDED, logits)


def _fits(shape: Any, other: Any) -> bool:
    return len(shape) == len(other) and all(
        x is None or y is None or x == y
        for x, y in zip(shape, other, strict=True)
    )
