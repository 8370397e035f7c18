"""Made-up interactions of which it is known how reliable each one is."""

from dataclasses import dataclass

import numpy as np

from keras_bft.data.interactions import Interactions

# A genuine click follows one of the successors of the genuine click before it
# with this probability, and the user's taste otherwise.
_FOLLOW_PROBABILITY = 0.6
_SUCCESSOR_PROBABILITIES = (0.5, 0.25, 0.15, 0.1)
# Each user likes few clusters: the concentration of a Dirichlet distribution.
_TASTE_CONCENTRATION = 0.15
# This share of the items takes this share of the random clicks.
_BAIT_ITEMS = 0.1
_BAIT_CLICKS = 0.8
_SHORTEST_HISTORY = 5


@dataclass(frozen=True, eq=False)
class SyntheticInteractions:
    """Interactions with known reliability.

    Args:
        interactions: The interactions.
        reliability: Of each row of `interactions`, shape `(N,)`, float32: 1 for
            a genuine click, which tells of the user's taste, and 0 for a random
            one, which tells nothing. A user's last row is the test target of a
            leave-one-out split.
    """

    interactions: Interactions
    reliability: np.ndarray

    def item_reliability(self) -> np.ndarray:
        """Share of genuine clicks among the clicks on each item.

        Returns:
            Array of shape `(V + 1,)`, float64 in 0..1, indexed by item code;
            entry 0, the padding, is 0.
        """
        counts = self.interactions.item_counts()
        genuine = np.bincount(
            self.interactions.item_codes,
            weights=self.reliability,
            minlength=len(counts),
        )
        return genuine / np.maximum(counts, 1)


def synthetic_interactions(
    num_users: int = 2500,
    num_items: int = 800,
    mean_length: float = 15.0,
    unreliable_share: float = 0.25,
    zipf_exponent: float = 1.0,
    num_clusters: int = 20,
    seed: int = 0,
) -> SyntheticInteractions:
    """Makes up interactions in which some clicks tell nothing.

    Items have popularities by Zipf's law and belong to clusters. A genuine
    click follows, with probability 0.6, one of four successors of the genuine
    click before it; otherwise it is an item of one of the few clusters the user
    likes, by popularity. A random click depends on neither and leaves what
    comes next as it was. Four in five random clicks fall on a tenth of the
    items, popular and rare ones, so most clicks on these are random: how far a
    click is to be trusted can partly be learned from its item.

    Args:
        num_users: Number of users, at least 1.
        num_items: Number of items to choose from. Those that nobody clicks on
            are not in the result.
        mean_length: Mean number of interactions of a user. Lengths are at least
            5 and geometrically distributed above, so at least 5 here too.
        unreliable_share: Probability that a click is random, in `[0, 1)`.
        zipf_exponent: The popularity of the item of rank `r` is proportional to
            `r ** -zipf_exponent`. At least 0, where all are equally popular.
        num_clusters: Number of clusters, from 1 to `num_items`.
        seed: Integer seed, at least 0. Equal arguments give equal data.

    Returns:
        The interactions and the reliability of each. Times count the user's
        clicks from 0; item ids are popularity ranks from 1.

    Raises:
        ValueError: If an argument is out of its range.

    Examples:

    >>> from keras_bft.data import synthetic_interactions
    >>> synthetic = synthetic_interactions(num_users=100, num_items=50)
    >>> synthetic.interactions.num_users
    100
    >>> synthetic.reliability.shape == synthetic.interactions.item_codes.shape
    True
    """
    _check_range("num_users", num_users, num_users >= 1, ">= 1")
    _check_range("mean_length", mean_length, mean_length >= 5, ">= 5")
    _check_range("zipf_exponent", zipf_exponent, zipf_exponent >= 0, ">= 0")
    _check_range(
        "unreliable_share",
        unreliable_share,
        0 <= unreliable_share < 1,
        "in [0, 1)",
    )
    _check_range(
        "num_clusters",
        num_clusters,
        1 <= num_clusters <= num_items,
        f"from 1 to num_items={num_items}",
    )
    rng = np.random.default_rng(seed)
    catalogue = _Catalogue(rng, num_items, num_clusters, zipf_exponent)
    extra = rng.geometric(1 / (mean_length + 1 - _SHORTEST_HISTORY), num_users)
    lengths = _SHORTEST_HISTORY - 1 + extra
    taste = rng.dirichlet(
        np.full(num_clusters, _TASTE_CONCENTRATION), num_users
    ).cumsum(axis=1)

    shape = (num_users, int(lengths.max()))
    items = np.empty(shape, dtype=np.int64)
    genuine = rng.random(shape) >= unreliable_share
    last = np.full(num_users, -1)
    for step in range(shape[1]):
        likes = rng.random((num_users, 1)) * taste[:, -1:]
        wanted = catalogue.by_taste(rng, (likes >= taste).sum(axis=1))
        follows = (last >= 0) & (rng.random(num_users) < _FOLLOW_PROBABILITY)
        wanted = np.where(follows, catalogue.successor(rng, last), wanted)
        stray = catalogue.at_random(rng, num_users)
        items[:, step] = np.where(genuine[:, step], wanted, stray)
        last = np.where(genuine[:, step], wanted, last)

    users, times = np.nonzero(np.arange(shape[1]) < lengths[:, None])
    interactions = Interactions.from_rows(
        user_codes=users,
        item_codes=items[users, times] + 1,
        timestamps=times,
        user_ids=np.arange(1, num_users + 1),
        item_ids=np.arange(1, num_items + 1),
    )
    return SyntheticInteractions(
        interactions, genuine[users, times].astype(np.float32)
    )


class _Catalogue:
    """Items 0..V-1 by falling popularity, and the ways to draw one."""

    def __init__(
        self,
        rng: np.random.Generator,
        num_items: int,
        num_clusters: int,
        zipf_exponent: float,
    ) -> None:
        popularity = np.arange(1, num_items + 1) ** -float(zipf_exponent)
        cluster = rng.permutation(np.arange(num_items) % num_clusters)
        self._by_cluster = np.argsort(cluster, kind="stable")
        self._cumulative = np.concatenate(
            [[0.0], popularity[self._by_cluster].cumsum()]
        )
        self._bounds = np.searchsorted(
            cluster[self._by_cluster], np.arange(num_clusters + 1)
        )

        # Half of the successors lie in the item's cluster, half in one other.
        other = rng.permutation(num_clusters)[cluster]
        self._successors = np.stack(
            [
                self.by_taste(rng, cluster if i % 2 else other)
                for i in range(len(_SUCCESSOR_PROBABILITIES))
            ],
            axis=1,
        )
        self._num_items = num_items
        num_bait = max(1, round(_BAIT_ITEMS * num_items))
        self._bait = rng.permutation(num_items)[:num_bait]
        bait_popularity = popularity[self._bait]
        self._bait_share = bait_popularity / bait_popularity.sum()

    def by_taste(
        self, rng: np.random.Generator, cluster: np.ndarray
    ) -> np.ndarray:
        """An item of each given cluster, by popularity."""
        low = self._cumulative[self._bounds[cluster]]
        high = self._cumulative[self._bounds[cluster + 1]]
        at = low + (high - low) * rng.random(len(cluster))
        position = np.searchsorted(self._cumulative, at, side="right") - 1
        # Rounding may carry a draw over the edge of its cluster.
        position = np.minimum(position, self._bounds[cluster + 1] - 1)
        return self._by_cluster[position]

    def successor(
        self, rng: np.random.Generator, items: np.ndarray
    ) -> np.ndarray:
        """A successor of each given item."""
        which = rng.choice(
            len(_SUCCESSOR_PROBABILITIES),
            len(items),
            p=_SUCCESSOR_PROBABILITIES,
        )
        return self._successors[items, which]

    def at_random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Items of random clicks."""
        bait = rng.choice(self._bait, count, p=self._bait_share)
        uniform = rng.integers(self._num_items, size=count)
        return np.where(rng.random(count) < _BAIT_CLICKS, bait, uniform)


def _check_range(name: str, value: float, valid: bool, allowed: str) -> None:
    if not valid:
        raise ValueError(
            f"`{name}` must be {allowed}. Received: {name}={value}"
        )
