"""Leave-one-out split: the last items of each user are held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_bft.data.interactions import Interactions


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Result of `leave_one_out`.

    With `U` users of whom `E` are evaluated; entry `i` of the lists and arrays
    of evaluation belongs to user `users[i]`.

    Args:
        train: Items of each of the `U` users to train on, oldest first.
        users: Positions of the evaluated users, shape `(E,)`, int64, rising.
        validation_histories: `E` arrays: all items before the last two.
        validation_targets: The last item but one, shape `(E,)`, int64.
        test_histories: `E` arrays: all items before the last, the validation
            item included.
        test_targets: The last item, shape `(E,)`, int64.
        train_timestamps: Times of `train`, `None` if there are none.
        validation_timestamps: Times of `validation_histories`, or `None`.
        test_timestamps: Times of `test_histories`, or `None`.
    """

    train: list[np.ndarray]
    users: np.ndarray
    validation_histories: list[np.ndarray]
    validation_targets: np.ndarray
    test_histories: list[np.ndarray]
    test_targets: np.ndarray
    train_timestamps: list[np.ndarray] | None = None
    validation_timestamps: list[np.ndarray] | None = None
    test_timestamps: list[np.ndarray] | None = None

    @property
    def num_not_evaluated(self) -> int:
        """Number of users too short to be evaluated."""
        return len(self.train) - len(self.users)

    def train_item_counts(self, num_items: int) -> np.ndarray:
        """Counts each item in the training sequences.

        Args:
            num_items: Number of items; codes run from 1 to it.

        Returns:
            Array of shape `(num_items + 1,)`, int64, indexed by item code, so
            that `counts[test_targets]` is how often each target was seen.

        Raises:
            ValueError: If the sequences hold an item above `num_items`.
        """
        items = np.concatenate([np.empty(0, np.int64), *self.train])
        counts = np.bincount(items, minlength=num_items + 1)
        if len(counts) > num_items + 1:
            raise ValueError(
                f"The training sequences hold item {len(counts) - 1}. "
                f"Received: num_items={num_items}"
            )
        return counts


def leave_one_out(
    sequences: Sequence[np.ndarray],
    timestamps: Sequence[np.ndarray] | None = None,
) -> LeaveOneOut:
    """Holds out each user's last item for test, the one before for validation.

    Users with fewer than three items stay in training whole and are not
    evaluated: nothing would be left to train on or to rank from.

    Args:
        sequences: Item codes of each user, oldest first: 1-D integer arrays, as
            `Interactions.sequences` gives them.
        timestamps: Their times, as `Interactions.sequence_timestamps` gives
            them, to be split alike; `None` if there are none.

    Returns:
        The split.

    Raises:
        TypeError: If `sequences` is an `Interactions`.
        ValueError: If no user has three items, or `timestamps` do not fit.

    Examples:

    >>> import numpy as np
    >>> from keras_bft.data import leave_one_out
    >>> split = leave_one_out([np.array([4, 2, 7, 1]), np.array([3, 5])])
    >>> split.train
    [array([4, 2]), array([3, 5])]
    >>> split.validation_targets, split.test_histories, split.test_targets
    (array([7]), [array([4, 2, 7])], array([1]))
    """
    if isinstance(sequences, Interactions):
        raise TypeError(
            "`sequences` must hold the items of each user: pass "
            f"`interactions.sequences()`. Received: sequences={sequences}"
        )
    users = [i for i, sequence in enumerate(sequences) if len(sequence) >= 3]
    if not users:
        raise ValueError(
            "A leave-one-out split needs a user with at least 3 items. "
            f"Received: {len(sequences)} sequences, the longest of "
            f"{max(map(len, sequences), default=0)} items"
        )
    evaluated = set(users)
    times: dict[str, list[np.ndarray]] = {}
    if timestamps is not None:
        if [len(t) for t in timestamps] != [len(s) for s in sequences]:
            raise ValueError(
                "`timestamps` must have one time for each item. Received: "
                f"{len(timestamps)} sequences of {sum(map(len, timestamps))} "
                f"times for {len(sequences)} sequences of "
                f"{sum(map(len, sequences))} items"
            )
        times = {
            "train_timestamps": [
                user_times[:-2] if i in evaluated else user_times
                for i, user_times in enumerate(timestamps)
            ],
            "validation_timestamps": [timestamps[i][:-2] for i in users],
            "test_timestamps": [timestamps[i][:-1] for i in users],
        }
    return LeaveOneOut(
        train=[
            sequence[:-2] if i in evaluated else sequence
            for i, sequence in enumerate(sequences)
        ],
        users=np.array(users, dtype=np.int64),
        validation_histories=[sequences[i][:-2] for i in users],
        validation_targets=np.array(
            [sequences[i][-2] for i in users], dtype=np.int64
        ),
        test_histories=[sequences[i][:-1] for i in users],
        test_targets=np.array(
            [sequences[i][-1] for i in users], dtype=np.int64
        ),
        **times,
    )
