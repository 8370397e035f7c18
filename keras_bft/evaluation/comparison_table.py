"""Comparison of two models on the same users."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from keras_bft.evaluation.bootstrap import paired_bootstrap
from keras_bft.evaluation.comparison import ComparisonRow
from keras_bft.evaluation.comparison import ComparisonTable
from keras_bft.evaluation.ranking import Ranking
from keras_bft.evaluation.strata import Strata


def comparison_table(
    first: Ranking | Mapping[str, Ranking],
    second: Ranking | Mapping[str, Ranking],
    *,
    names: tuple[str, str] = ("first", "second"),
    strata: Sequence[Strata] = (),
    metrics: Sequence[str] = ("hr@10", "ndcg@10"),
    num_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> ComparisonTable:
    """Compares two models on the same users, overall and by stratum.

    Several runs of each model, one for each training seed, are averaged user
    by user before users are resampled, and each pair of runs has a row of its
    own. The intervals hold the variation between users and not that between
    seeds, which the rows of the runs show.

    Args:
        first: Ranking of the model to compare with, or a mapping from a label
            such as `"seed 0"` to a ranking for each run.
        second: Ranking of the other model, or such a mapping with the same
            labels.
        names: Names of the two models.
        strata: Groups of the same users, from `quartile_strata`.
        metrics: Measures that `Ranking.per_user` knows. Defaults to HR@10 and
            NDCG@10.
        num_resamples: Bootstrap resamples. Defaults to 10,000.
        confidence: Of the intervals. Defaults to 0.95.
        seed: Seed of the resamples. Defaults to 0.

    Returns:
        A `keras_bft.evaluation.ComparisonTable`; print it.

    Raises:
        ValueError: If the rankings are of different users, targets, catalogues
            or filtering, if the runs differ in their labels, or if strata are
            of another number of users.

    Examples:

    ```python
    strata = keras_bft.evaluation.quartile_strata(
        train_counts[plain.targets], "target's training count"
    )
    print(
        keras_bft.evaluation.comparison_table(
            plain, bft, names=("plain", "BFT"), strata=[strata]
        )
    )
    ```
    """
    runs = [
        {"": model} if isinstance(model, Ranking) else dict(model)
        for model in (first, second)
    ]
    if not runs[0] or list(runs[0]) != list(runs[1]):
        raise ValueError(
            "`first` and `second` must have the same runs in the same order, "
            f"at least one. Received: {list(runs[0])} and {list(runs[1])}"
        )
    rankings = [ranking for model in runs for ranking in model.values()]
    if not rankings[0].num_users:
        raise ValueError(
            "`first` must rank at least one user. Received: num_users=0"
        )
    for ranking in rankings[1:]:
        _check_same(rankings[0], ranking)
    everyone = np.ones(rankings[0].num_users, dtype=bool)
    groups = []
    for stratum in strata:
        if stratum.index.shape != everyone.shape:
            raise ValueError(
                f"`strata` must be of the {len(everyone)} users ranked. "
                f"Received: {stratum.name!r} with {len(stratum.index)} users"
            )
        groups += [(stratum.name, *group) for group in stratum.masks()]

    def make_row(
        metric: str,
        name: str,
        label: str,
        first: np.ndarray,
        second: np.ndarray,
    ) -> ComparisonRow:
        row = ComparisonRow(metric, name, label, len(first))
        if not len(first):
            return row
        return dataclasses.replace(
            row,
            first=float(first.mean()),
            second=float(second.mean()),
            interval=paired_bootstrap(
                first,
                second,
                num_resamples=num_resamples,
                confidence=confidence,
                seed=seed,
            ),
        )

    rows = []
    for metric in metrics:
        values = [
            {label: run.per_user(metric) for label, run in model.items()}
            for model in runs
        ]
        means = [np.mean(list(model.values()), axis=0) for model in values]
        rows.append(make_row(metric, "all users", "", *means))
        if len(runs[0]) > 1:
            rows += [
                make_row(metric, "each run", label, *(v[label] for v in values))
                for label in runs[0]
            ]
        rows += [
            make_row(metric, name, label, *(mean[mask] for mean in means))
            for name, label, mask in groups
        ]
    return ComparisonTable(
        names=names,
        protocol=_protocol(rankings, num_resamples, confidence),
        rows=tuple(rows),
    )


def _check_same(first: Ranking, second: Ranking) -> None:
    for field in ("users", "targets", "history_lengths"):
        # As text, since users read from a file are strings.
        if not np.array_equal(
            getattr(first, field).astype(str),
            getattr(second, field).astype(str),
        ):
            raise ValueError(
                "`first` and `second` must rank the same targets of the same "
                f"users in the same order. Received: different `{field}`"
            )
    for field in ("filter_seen", "num_items"):
        if getattr(first, field) != getattr(second, field):
            raise ValueError(
                f"`first` and `second` must have the same `{field}`. "
                f"Received: {getattr(first, field)} and "
                f"{getattr(second, field)}"
            )


def _protocol(
    rankings: list[Ranking], num_resamples: int, confidence: float
) -> str:
    ranking = rankings[0]
    seen = (
        "items of the history filtered"
        if ranking.filter_seen
        else "items of the history kept"
    )
    lines = [
        f"{ranking.num_users:,} targets, each ranked among all "
        f"{ranking.num_items:,} items, {seen}.",
        f"{ranking.num_unhittable:,} targets repeat an item of their history "
        "and cannot be hit.",
        f"{100 * confidence:g} % intervals of the difference: "
        f"{num_resamples:,} paired resamples of users.",
    ]
    if len(rankings) > 2:
        lines.append(
            f"Means over {len(rankings) // 2} runs of each model; the "
            "intervals do not hold the variation between runs."
        )
    return "\n".join(lines)
