"""Ranking of held-out targets over the whole catalogue."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bft.evaluation.ranking import Ranking

# Scores held at a time: 256 MiB of float32.
_MAX_SCORES = 2**26


def rank_targets(
    score: Callable[..., Any] | Any,
    histories: Sequence[Any],
    targets: Any,
    *,
    filter_seen: bool = True,
    batch_size: int = 256,
    users: Any = None,
    timestamps: Sequence[Any] | None = None,
    verbose: bool = True,
) -> Ranking:
    """Ranks each user's target among all items, never a sample of them.

    The rank of a target is `1 + greater + equal / 2`, where `greater` and
    `equal` count the other items with a higher and with the same score: the
    mean of the ranks that the tied items share. It depends on nothing but the
    scores, and a model that scores all items alike gets the middle rank.

    With `filter_seen` the items of a user's history are taken out of that
    user's catalogue. A target that the history already holds goes with them:
    it cannot be ranked, its rank is infinity and it counts as a miss. Both
    choices are in use in the field, and they give different numbers: report
    which one was made.

    Scores are asked for and ranked `batch_size` users at a time, and fewer
    where they would have more than 2^26 scores (256 MiB) together, so memory
    grows neither with the number of users nor, beyond a user's own scores,
    with that of the items. Users with histories of about the same length are
    scored together, so a model that pads them has little to pad.

    Args:
        score: Function from a list of one-dimensional integer arrays to scores
            of shape `(len(list), num_items + 1)`, or an object with such a
            method `score`. Column 0 belongs to padding and is never ranked. A
            history may be empty. An attribute `num_items` of the object, or
            else the first scores, tell how many users fit into memory.
        histories: One sequence of item ids (1 to `num_items`, oldest first,
            no padding) for each user.
        targets: Integers of shape `(num_users,)`, the item to rank for each
            user, 1 to `num_items`.
        filter_seen: Whether items of the history are left out. Defaults to
            `True`.
        batch_size: Largest number of users scored at a time. Defaults to 256.
        users: Names or numbers of the users, of shape `(num_users,)`, for the
            result and for messages. Defaults to 0, 1, 2 and so on.
        timestamps: Times of the items of each history, for a model that reads
            them. `score` is then also given `timestamps=`, a list of those of
            its histories.
        verbose: Whether to show a progress bar. Defaults to `True`.

    Returns:
        A `keras_bft.evaluation.Ranking`.

    Raises:
        ValueError: If there are no users, if lengths or shapes disagree, if an
            id is outside the catalogue or if a score is NaN.

    Examples:

    >>> import numpy as np
    >>> from keras_bft.evaluation import rank_targets
    >>> popularity = np.array([0.0, 9.0, 7.0, 7.0, 1.0])
    >>> def score(histories):
    ...     return np.tile(popularity, (len(histories), 1))
    >>> rank_targets(score, [[4], []], [3, 3], verbose=False).ranks
    array([2.5, 2.5])
    """
    targets = _integers(targets, "targets")
    users = np.arange(len(targets)) if users is None else np.asarray(users)
    if not len(targets):
        raise ValueError(
            "`targets` must have at least one user. Received: targets=[]"
        )
    if not len(histories) == len(users) == len(targets):
        raise ValueError(
            "`histories`, `targets` and `users` must be equally long. "
            f"Received: len(histories)={len(histories)}, "
            f"len(targets)={len(targets)}, len(users)={len(users)}"
        )
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be positive. Received: batch_size={batch_size}"
        )
    if timestamps is not None and len(timestamps) != len(histories):
        raise ValueError(
            "`timestamps` must have one sequence per history. Received: "
            f"len(timestamps)={len(timestamps)}, "
            f"len(histories)={len(histories)}"
        )
    score_batch = score.score if hasattr(score, "score") else score
    arrays = [_integers(history, "histories") for history in histories]
    lengths = np.array([len(history) for history in arrays])
    by_length = np.argsort(lengths, kind="stable")
    ranks = np.empty(len(targets))
    num_items = 0  # known from the first scores
    told = getattr(score, "num_items", 0)
    progress = keras.utils.Progbar(
        len(targets), verbose=int(verbose), unit_name="user"
    )
    done = 0
    while done < len(targets):
        room = max(1, _MAX_SCORES // ((num_items or told) + 1))
        batch = by_length[done : done + min(batch_size, room)]
        batch_histories = [arrays[user] for user in batch]
        times = {}
        if timestamps is not None:
            times["timestamps"] = [timestamps[user] for user in batch]
        scores = _checked_scores(
            score_batch(batch_histories, **times), users[batch], num_items
        )
        num_items = scores.shape[1] - 1
        ranks[batch] = _rank_batch(
            scores, batch_histories, targets[batch], users[batch], filter_seen
        )
        done += len(batch)
        progress.update(done)
    return Ranking(
        ranks=ranks,
        targets=targets,
        history_lengths=lengths,
        users=users,
        num_items=num_items,
        filter_seen=filter_seen,
    )


def _rank_batch(
    scores: np.ndarray,
    histories: list[np.ndarray],
    targets: np.ndarray,
    users: np.ndarray,
    filter_seen: bool,
) -> np.ndarray:
    """Returns the expected rank of each row's target, (B,)."""
    num_items = scores.shape[1] - 1
    rows = np.arange(len(targets))
    history_rows = np.repeat(rows, [len(history) for history in histories])
    history_items = np.concatenate(histories)
    _check_items(targets, users, num_items, "targets")
    _check_items(history_items, users[history_rows], num_items, "histories")
    candidate = np.ones(scores.shape, dtype=bool)
    candidate[:, 0] = False
    if filter_seen:
        candidate[history_rows, history_items] = False
    target_scores = scores[rows, targets][:, None]
    greater = np.count_nonzero((scores > target_scores) & candidate, axis=1)
    # The target equals itself.
    equal = np.count_nonzero((scores == target_scores) & candidate, axis=1) - 1
    return np.where(candidate[rows, targets], 1 + greater + equal / 2, np.inf)


def _checked_scores(
    scores: Any, users: np.ndarray, num_items: int
) -> np.ndarray:
    """Returns scores as an array that compares exactly, or raises."""
    if not isinstance(scores, np.ndarray):
        scores = keras.ops.convert_to_numpy(scores)
    if scores.dtype.kind not in "fiu":
        # bfloat16 is no NumPy type of its own; float32 holds it exactly.
        scores = scores.astype("float32")
    if (
        scores.ndim != 2
        or len(scores) != len(users)
        or scores.shape[1] < 2
        or (num_items and scores.shape[1] != num_items + 1)
    ):
        columns = num_items + 1 if num_items else "num_items + 1"
        raise ValueError(
            "`score` must return an array of shape (number of histories, "
            f"num_items + 1), here ({len(users)}, {columns}). "
            f"Received: scores.shape={scores.shape}"
        )
    invalid = np.isnan(scores[:, 1:])
    if invalid.any():
        row, column = np.argwhere(invalid)[0]
        raise ValueError(
            "`score` must not return NaN: an item without a score has no "
            f"rank. Received: NaN for user {users[row]}, item {column + 1} "
            f"(and {int(invalid.sum()) - 1} more in the same batch)"
        )
    return scores


def _check_items(
    items: np.ndarray, users: np.ndarray, num_items: int, name: str
) -> None:
    outside = (items < 1) | (items > num_items)
    if outside.any():
        first = int(np.argmax(outside))
        raise ValueError(
            f"`{name}` must hold item ids from 1 to {num_items}, the number "
            f"of items scored. Received: item {items[first]} for user "
            f"{users[first]}"
        )


def _integers(values: Any, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype("int64")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be one-dimensional arrays of integers. "
            f"Received: an array of shape {array.shape} and dtype "
            f"{array.dtype}"
        )
    return array
