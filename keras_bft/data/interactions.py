"""User-item interactions with consecutive codes and their original ids."""

from collections.abc import Hashable
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from keras_bft.data._coding import k_core_rows
from keras_bft.data._coding import popularity_codes
from keras_bft.data._coding import repeated_rows
from keras_bft.data._ids import check_codes
from keras_bft.data._lookup import look_up
from keras_bft.data._storage import read_folder
from keras_bft.data._storage import write_folder
from keras_bft.data._times import check_times


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Interactions of users with items, in time order within each user.

    Rows are sorted by user and within a user by time; rows with tied times keep
    the order they were read in. Items are coded from 1 (0 pads a batch) by
    falling interaction count, ties by first appearance, so that a log-uniform
    sampler over the codes samples by popularity. Most users of this class get
    it from `keras_bft.data.read_interactions`.

    Args:
        user_codes: User of each row, shape `(N,)`, int64 in `0..U-1`, sorted.
        item_codes: Item of each row, shape `(N,)`, int64 in `1..V`.
        timestamps: Time of each row, shape `(N,)`, int64 or float64 in the unit
            of the source, or `None` where the source has no times.
        user_ids: Original id of each user code, shape `(U,)`. A user may have
            no row.
        item_ids: Original ids, shape `(V,)`: item code `c` stands for
            `item_ids[c - 1]`.

    Raises:
        ValueError: If the arrays do not fit together.

    Examples:

    >>> import numpy as np
    >>> from keras_bft.data import Interactions
    >>> interactions = Interactions(
    ...     user_codes=np.array([0, 0, 1]),
    ...     item_codes=np.array([1, 2, 1]),
    ...     timestamps=None,
    ...     user_ids=np.array([17, 4]),
    ...     item_ids=np.array(["tea", "milk"], dtype=object),
    ... )
    >>> interactions.sequences()
    [array([1, 2], dtype=int32), array([1], dtype=int32)]
    """

    user_codes: np.ndarray
    item_codes: np.ndarray
    timestamps: np.ndarray | None
    user_ids: np.ndarray
    item_ids: np.ndarray

    def __post_init__(self) -> None:
        rows = (self.user_codes.size,)
        check_codes("user_codes", self.user_codes, rows, 0, self.num_users - 1)
        check_codes("item_codes", self.item_codes, rows, 1, self.num_items)
        if np.any(self.user_codes[1:] < self.user_codes[:-1]):
            raise ValueError(
                "`user_codes` must be sorted. "
                f"Received: user_codes={self.user_codes!s:.200}"
            )
        if self.timestamps is not None:
            check_times(self.timestamps, self.user_codes)

    @classmethod
    def from_rows(
        cls,
        user_codes: np.ndarray,
        item_codes: np.ndarray,
        timestamps: np.ndarray | None,
        user_ids: np.ndarray,
        item_ids: np.ndarray,
    ) -> "Interactions":
        """Sorts rows of any order and codes their items by popularity.

        Args:
            user_codes: Shape `(N,)`, in `0..U-1`, any order.
            item_codes: Shape `(N,)`, in `1..W`, any order.
            timestamps: Shape `(N,)`, or `None` where the order of the rows is
                their time. Equal times keep the order of the rows.
            user_ids: Shape `(U,)`.
            item_ids: Shape `(W,)`. Items without a row are left out.

        Returns:
            The interactions, with the item codes given anew.
        """
        if timestamps is None:
            order = np.argsort(user_codes, kind="stable")
        else:
            order = np.lexsort((timestamps, user_codes))
            timestamps = timestamps[order]
        codes, items = popularity_codes(item_codes[order])
        return cls(
            user_codes=user_codes[order],
            item_codes=codes,
            timestamps=timestamps,
            user_ids=user_ids,
            item_ids=item_ids[items - 1],
        )

    def __repr__(self) -> str:
        return (
            f"Interactions(num_users={self.num_users}, "
            f"num_items={self.num_items}, "
            f"num_interactions={self.num_interactions})"
        )

    @property
    def num_users(self) -> int:
        """Number of users, those without a row included."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Number of items, the padding code 0 not included."""
        return len(self.item_ids)

    @property
    def num_interactions(self) -> int:
        """Number of rows."""
        return len(self.item_codes)

    @property
    def num_empty_users(self) -> int:
        """Number of users without a row."""
        return self.num_users - len(np.unique(self.user_codes))

    @property
    def num_duplicates(self) -> int:
        """Number of rows that repeat the user, item and time of another.

        Zero where there are no times: a repeat is then a repeated visit.
        """
        if self.timestamps is None:
            return 0
        repeated = repeated_rows(
            self.user_codes, self.item_codes, self.timestamps
        )
        return int(np.count_nonzero(repeated))

    def item_counts(self) -> np.ndarray:
        """Counts the rows of each item.

        Returns:
            Array of shape `(V + 1,)`, int64, indexed by item code; entry 0, the
            padding, is 0.
        """
        return np.bincount(self.item_codes, minlength=self.num_items + 1)

    def sequences(self) -> list[np.ndarray]:
        """Item codes of each user, oldest first.

        Returns:
            List of `U` int32 arrays of shape `(length,)`, in the order of the
            user codes; empty for a user without a row.
        """
        return self._by_user(self.item_codes.astype(np.int32))

    def sequence_timestamps(self) -> list[np.ndarray] | None:
        """Times of the items of `sequences()`, `None` if there are none."""
        if self.timestamps is None:
            return None
        return self._by_user(self.timestamps)

    def _by_user(self, values: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum(np.bincount(self.user_codes, minlength=self.num_users))
        return np.split(values, ends[:-1])

    def k_core(self, k: int) -> "Interactions":
        """Keeps users and items with at least `k` interactions each.

        Dropping an item shortens histories and dropping a user thins out items,
        so both are repeated until nothing changes. Codes are given anew; ids
        stay.

        Args:
            k: Least number of rows of every user and every item, at least 1.

        Returns:
            The `k`-core. Users without a row are not in it.

        Raises:
            ValueError: If `k` is below 1 or nothing is left.
        """
        if k < 1:
            raise ValueError(f"`k` must be at least 1. Received: k={k}")
        keep = k_core_rows(self.user_codes, self.item_codes, k)
        if not keep.any():
            raise ValueError(
                f"No user and item have {k} interactions each in {self}. Use a "
                f"smaller `k`. Received: k={k}"
            )
        users_left, user_codes = np.unique(
            self.user_codes[keep], return_inverse=True
        )
        return Interactions.from_rows(
            user_codes,
            self.item_codes[keep],
            None if self.timestamps is None else self.timestamps[keep],
            self.user_ids[users_left],
            self.item_ids,
        )

    @cached_property
    def _user_code_of(self) -> dict[Hashable, int]:
        return {user_id: c for c, user_id in enumerate(self.user_ids.tolist())}

    def histories(self, user_ids: Iterable[Any]) -> list[np.ndarray]:
        """Item codes of some users, by their original ids.

        Args:
            user_ids: Original ids of users.

        Returns:
            List of int32 arrays of shape `(length,)`, oldest item first, as
            `recommend` takes them; empty for a user without a row.

        Raises:
            ValueError: If an id is not one of `user_ids`.
        """
        if isinstance(user_ids, str):
            raise ValueError(
                "`user_ids` must be a list of ids, such as ['ann', 'bob']. "
                f"Received: user_ids={user_ids!r}"
            )
        (users,) = look_up([user_ids], self._user_code_of, "user")
        starts = np.searchsorted(self.user_codes, users)
        ends = np.searchsorted(self.user_codes, users, side="right")
        return [
            self.item_codes[start:end].astype(np.int32)
            for start, end in zip(starts, ends, strict=True)
        ]

    @cached_property
    def _code_of(self) -> dict[Hashable, int]:
        return {
            item_id: code
            for code, item_id in enumerate(self.item_ids.tolist(), 1)
        }

    def encode(self, histories: Iterable[Iterable[Any]]) -> list[np.ndarray]:
        """Translates histories of original item ids to item codes.

        Args:
            histories: Original item ids of each user, any lengths.

        Returns:
            List of int32 arrays of shape `(length,)`.

        Raises:
            ValueError: If an id is not one of `item_ids`, or a history is
                one id.
        """
        histories = list(histories)
        for history in histories:
            if isinstance(history, str) or not isinstance(history, Iterable):
                raise ValueError(
                    "`histories` must hold a history of item ids for each "
                    "user, such as [['a', 'b'], ['c']]. "
                    f"Received: a history {history!r}"
                )
        return look_up(histories, self._code_of, "item")

    def decode(self, codes: Any) -> np.ndarray:
        """Translates item codes to original ids.

        Args:
            codes: Integers in `1..V`, any shape.

        Returns:
            Original ids in the shape of `codes`.

        Raises:
            ValueError: If a code is outside `1..V`.
        """
        codes = np.asarray(codes)
        if codes.size == 0:
            return self.item_ids[:0].reshape(codes.shape)
        check_codes("codes", codes, codes.shape, 1, self.num_items)
        return self.item_ids[codes - 1]

    def save(self, folder: str | PathLike[str]) -> None:
        """Saves the rows and both id maps; nothing is pickled.

        Args:
            folder: Folder to write `interactions.npz` and `ids.json` into. It
                is made where it does not exist; earlier files are replaced.

        Raises:
            TypeError: If an id is not an integer, string, float or boolean.
        """
        arrays = {"user_codes": self.user_codes, "item_codes": self.item_codes}
        if self.timestamps is not None:
            arrays["timestamps"] = self.timestamps
        ids = {"user_ids": self.user_ids, "item_ids": self.item_ids}
        write_folder(folder, arrays, ids)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "Interactions":
        """Loads what `save` wrote.

        Args:
            folder: Folder that `save` wrote into.

        Returns:
            The interactions, equal to those saved.

        Raises:
            FileNotFoundError: If the folder lacks one of the two files.
            ValueError: If a file is damaged or lacks a part, or the two do not
                belong together.
        """
        arrays, ids = read_folder(folder)
        needed = {"user_codes", "item_codes", "user_ids", "item_ids"}
        if missing := sorted(needed - {*arrays, *ids}):
            raise ValueError(
                "The folder must hold what `save` wrote. Received: "
                f"folder={str(folder)!r} without {missing}"
            )
        return cls(
            user_codes=arrays["user_codes"],
            item_codes=arrays["item_codes"],
            timestamps=arrays.get("timestamps"),
            user_ids=ids["user_ids"],
            item_ids=ids["item_ids"],
        )
