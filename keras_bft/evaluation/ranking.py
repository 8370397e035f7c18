"""Ranks of held-out targets and the measures taken from them."""

import csv
import dataclasses
import gzip
import os
import re
from collections.abc import Sequence

import numpy as np

from keras_bft.evaluation._ranking_file import COLUMNS
from keras_bft.evaluation._ranking_file import read_ranking_file


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """Rank of each user's target item in the whole catalogue.

    `keras_bft.evaluation.rank_targets` makes it. Rank 1 is the best; a target
    that ties with others has the mean of the ranks they share, so ranks may
    end in a half. A target that was filtered out of the catalogue because its
    user's history already holds it has rank infinity: no list can hit it, and
    `num_unhittable` counts it. It stays in every mean, as a miss.

    Args:
        ranks: Float array of shape `(num_users,)`.
        targets: Integer array of shape `(num_users,)`, item ids from 1.
        history_lengths: Integer array of shape `(num_users,)`.
        users: Array of shape `(num_users,)`, a name or number for each user.
        num_items: Number of items that were ranked.
        filter_seen: Whether items of the history were left out.

    Examples:

    >>> import numpy as np
    >>> from keras_bft.evaluation import rank_targets
    >>> def score(histories):
    ...     return np.tile([0.0, 4.0, 3.0, 2.0, 1.0], (len(histories), 1))
    >>> ranking = rank_targets(score, [[1], [2, 4]], [2, 3], verbose=False)
    >>> ranking.ranks
    array([1., 2.])
    >>> ranking.hit_rate(1)
    0.5
    """

    ranks: np.ndarray
    targets: np.ndarray
    history_lengths: np.ndarray
    users: np.ndarray
    num_items: int
    filter_seen: bool

    def __post_init__(self) -> None:
        if self.ranks.ndim != 1:
            raise ValueError(
                "`ranks` must have one dimension. Received: "
                f"ranks.shape={self.ranks.shape}"
            )
        for name in ("targets", "history_lengths", "users"):
            shape = getattr(self, name).shape
            if shape != self.ranks.shape:
                raise ValueError(
                    f"`{name}` must have the shape of `ranks`, "
                    f"{self.ranks.shape}. Received: {name}.shape={shape}"
                )

    @property
    def num_users(self) -> int:
        """Number of users ranked."""
        return len(self.ranks)

    @property
    def num_unhittable(self) -> int:
        """Number of targets that filtering took out of the catalogue."""
        return int(np.isinf(self.ranks).sum())

    def hits(self, k: int) -> np.ndarray:
        """Returns 1.0 for each user whose target is among the first `k`.

        Args:
            k: Length of the list, a positive integer. It may exceed the
                catalogue: then every target that can be ranked is a hit.

        Returns:
            Float array of shape `(num_users,)`.
        """
        return (self.ranks <= _positive(k)).astype("float64")

    def ndcgs(self, k: int) -> np.ndarray:
        """Returns each user's normalised discounted cumulative gain.

        With one target it is `1 / log2(1 + rank)` within the first `k`, and
        0 beyond.

        Args:
            k: Length of the list, a positive integer.

        Returns:
            Float array of shape `(num_users,)`.
        """
        return self.hits(k) / np.log2(1.0 + self.ranks)

    def reciprocal_ranks(self) -> np.ndarray:
        """Returns `1 / rank` for each user, 0 where the rank is infinite."""
        return 1.0 / self.ranks

    def per_user(self, metric: str) -> np.ndarray:
        """Returns each user's value of a measure given by name.

        Args:
            metric: `"hr@K"`, `"ndcg@K"` (K a positive integer) or `"mrr"`.

        Returns:
            Float array of shape `(num_users,)`.

        Raises:
            ValueError: If `metric` is none of these.
        """
        if metric == "mrr":
            return self.reciprocal_ranks()
        match = re.fullmatch(r"(hr|ndcg)@(\d+)", metric)
        if match is None:
            raise ValueError(
                '`metric` must be "hr@K", "ndcg@K" or "mrr", with K a '
                f"positive integer. Received: metric={metric!r}"
            )
        measure = self.hits if match[1] == "hr" else self.ndcgs
        return measure(int(match[2]))

    def hit_rate(self, k: int) -> float:
        """Returns the share of users whose target is among the first `k`."""
        return self._mean(self.hits(k))

    def ndcg(self, k: int) -> float:
        """Returns the mean over users of `ndcgs(k)`."""
        return self._mean(self.ndcgs(k))

    def mrr(self) -> float:
        """Returns the mean over users of the reciprocal rank."""
        return self._mean(self.reciprocal_ranks())

    def summary(self, ks: Sequence[int] = (5, 10)) -> dict[str, float]:
        """Returns the usual measures by name.

        Args:
            ks: Lengths of the list. Defaults to 5 and 10.

        Returns:
            Dictionary with `"hr@K"` and `"ndcg@K"` for each K of `ks`, then
            `"mrr"`.
        """
        values = {}
        for k in ks:
            values[f"hr@{k}"] = self.hit_rate(k)
            values[f"ndcg@{k}"] = self.ndcg(k)
        return values | {"mrr": self.mrr()}

    def where(self, mask: np.ndarray) -> "Ranking":
        """Returns the ranking of the users for whom `mask` is true.

        Args:
            mask: Boolean array of shape `(num_users,)`.
        """
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != self.ranks.shape:
            raise ValueError(
                f"`mask` must be a boolean array of shape {self.ranks.shape}. "
                f"Received: mask.dtype={mask.dtype}, mask.shape={mask.shape}"
            )
        return dataclasses.replace(
            self,
            ranks=self.ranks[mask],
            targets=self.targets[mask],
            history_lengths=self.history_lengths[mask],
            users=self.users[mask],
        )

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one line a user, with a header.

        The columns are `user`, `target`, `history_length`, `rank` (`inf`
        where the target cannot be hit), `filter_seen` (0 or 1) and
        `num_items`.

        Args:
            path: File to write. An existing file is replaced. Compressed if it
                ends in `.gz`.
        """
        opened = gzip.open if os.fspath(path).endswith(".gz") else open
        with opened(path, "wt", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            # `tolist` gives Python numbers, which print alike everywhere.
            for user, target, length, rank in zip(
                self.users.tolist(),
                self.targets.tolist(),
                self.history_lengths.tolist(),
                self.ranks.tolist(),
                strict=True,
            ):
                constants = (int(self.filter_seen), self.num_items)
                writer.writerow((user, target, length, rank, *constants))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> "Ranking":
        """Reads what `to_csv` wrote. Users come back as strings.

        Args:
            path: File to read.

        Raises:
            ValueError: If the file is not one that `to_csv` wrote, or has no
                users.
        """
        return cls(**read_ranking_file(path))

    def _mean(self, values: np.ndarray) -> float:
        if not self.num_users:
            raise ValueError(
                "A ranking of no users has no mean. Received: num_users=0"
            )
        return float(values.mean())


def _positive(k: int) -> int:
    if k < 1 or k != int(k):
        raise ValueError(f"`k` must be a positive integer. Received: k={k}")
    return int(k)
