"""Groups of users by the quartile of a value."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Strata:
    """Users in four groups by the quartile of a value, `Q0` the smallest.

    `print(strata)` shows the edges and the number of users in each group.

    Args:
        name: What the value is, for tables and plots.
        edges: Array of shape `(5,)`: smallest value, the three quartiles,
            largest value.
        index: Integer array of shape `(num_users,)`, the group, 0 to 3.
        labels: Four labels with the group's values in interval notation, such
            as `"Q1 (5, 11]"`: above 5, up to and with 11.
    """

    name: str
    edges: np.ndarray
    index: np.ndarray
    labels: tuple[str, ...]

    def masks(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yields each label and the `(num_users,)` mask of its users."""
        for group, label in enumerate(self.labels):
            yield label, self.index == group

    def __str__(self) -> str:
        width = max(map(len, self.labels))
        lines = [
            f"  {label:<{width}}  {int(mask.sum()):,} users"
            for label, mask in self.masks()
        ]
        return "\n".join([self.name, *lines])


def quartile_strata(values: Any, name: str) -> Strata:
    """Groups users by the quartile of a value, such as a target's count.

    The edges are values that occur: the first quartile is the smallest value
    that at least a quarter of the users do not exceed. Users with equal values
    are always in the same group, the lower one at an edge, so groups are equal
    in size only as far as ties allow, and one can be empty.

    Args:
        values: Numbers of shape `(num_users,)`, for instance how often the
            training data hold each user's target item, or the length of each
            user's history.
        name: What the value is, for tables and plots.

    Returns:
        A `keras_bft.evaluation.Strata`.

    Raises:
        ValueError: If `values` is empty, not one-dimensional or holds a number
            that is not finite.

    Examples:

    >>> from keras_bft.evaluation import quartile_strata
    >>> print(quartile_strata([1, 1, 2, 3, 5, 8, 13, 21], "target's count"))
    target's count
      Q0 [1, 1]   2 users
      Q1 (1, 3]   2 users
      Q2 (3, 8]   2 users
      Q3 (8, 21]  2 users
    """
    values = np.asarray(values)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(
            "`values` must be a one-dimensional array of finite numbers, one "
            f"for each user. Received: values of shape {values.shape}, "
            f"{int((~np.isfinite(values)).sum())} of them not finite"
        )
    edges = np.quantile(values, np.arange(5) / 4, method="inverted_cdf")
    index = np.searchsorted(edges[1:4], values, side="left")
    labels = tuple(
        f"Q{group} {'(' if group else '['}{_format(edges[group])}, "
        f"{_format(edges[group + 1])}]"
        for group in range(4)
    )
    return Strata(name=name, edges=edges, index=index, labels=labels)


def _format(edge: np.number) -> str:
    return f"{edge:,}" if isinstance(edge, np.integer) else f"{edge:.4g}"
