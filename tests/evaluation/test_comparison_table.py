import csv

import numpy as np
import pytest

from keras_bft.evaluation import Ranking
from keras_bft.evaluation import comparison_table
from keras_bft.evaluation import paired_bootstrap
from keras_bft.evaluation import quartile_strata


def make_ranking(ranks, **kwargs):
    num_users = len(ranks)
    fields = {
        "targets": np.arange(1, num_users + 1),
        "history_lengths": np.full(num_users, 3),
        "users": np.arange(num_users),
        "num_items": 1500,
        "filter_seen": True,
    }
    return Ranking(ranks=np.array(ranks, dtype="float64"), **fields | kwargs)


def rows_by_place(table):
    return {(row.metric, row.stratum, row.label): row for row in table.rows}


def test_means_and_intervals_by_stratum():
    first = make_ranking([1, 20, 30, 5, 60, 70, 80, 3])
    second = make_ranking([1, 2, 30, 50, 60, 7, 8, 3])
    strata = quartile_strata([1, 1, 1, 2, 2, 3, 4, 4], "count")
    table = comparison_table(first, second, strata=[strata])
    rows = rows_by_place(table)
    everyone = rows["hr@10", "all users", ""]
    assert (everyone.first, everyone.second) == (3 / 8, 5 / 8)
    assert everyone.interval == paired_bootstrap(
        first.hits(10), second.hits(10)
    )
    rare = rows["ndcg@10", "count", "Q0 [1, 1]"]
    assert rare.num_users == 3
    assert rare.first == pytest.approx(1 / 3)
    assert rare.second == pytest.approx((1 + 1 / np.log2(3)) / 3)
    assert rare.interval == paired_bootstrap(
        first.ndcgs(10)[:3], second.ndcgs(10)[:3]
    )
    assert len(rows) == 2 * (1 + 4)


def test_runs_are_averaged_user_by_user_and_shown_each():
    first = {
        "seed 0": make_ranking([1, 20, 20]),
        "seed 7": make_ranking([20, 20, 20]),
    }
    second = {
        "seed 0": make_ranking([1, 1, 20]),
        "seed 7": make_ranking([1, 20, 20]),
    }
    table = comparison_table(first, second, metrics=["hr@10"])
    rows = rows_by_place(table)
    pooled = rows["hr@10", "all users", ""]
    assert pooled.first == pytest.approx(1 / 6)
    assert pooled.second == pytest.approx(1 / 2)
    assert pooled.interval == paired_bootstrap([0.5, 0, 0], [1, 0.5, 0])
    run = rows["hr@10", "each run", "seed 7"]
    assert (run.first, run.second) == (0, pytest.approx(1 / 3))
    assert run.interval == paired_bootstrap([0, 0, 0], [1, 0, 0])
    assert len(rows) == 3
    assert "Means over 2 runs of each model" in table.protocol


def test_text_states_the_protocol_and_every_group():
    ranks = [1, 20, np.inf, 4]
    first = make_ranking(ranks)
    second = make_ranking([1, 2, np.inf, 4])
    strata = quartile_strata([5, 5, 5, 9], "target's training count")
    text = str(
        comparison_table(
            first,
            second,
            names=("plain", "BFT"),
            strata=[strata],
            metrics=["hr@10"],
        )
    )
    assert text.splitlines() == [
        "4 targets, each ranked among all 1,500 items, items of the history "
        "filtered.",
        "1 targets repeat an item of their history and cannot be hit.",
        "95 % intervals of the difference: 10,000 paired resamples of users.",
        "",
        "HR@10                      users    plain      BFT  BFT minus plain",
        "all users                      4   0.5000   0.7500  +0.2500 "
        "[+0.0000, +0.7500]",
        "target's training count",
        "  Q0 [5, 5]                    3   0.3333   0.6667  +0.3333 "
        "[+0.0000, +1.0000]",
        "  Q1 (5, 5]                    0        -        -  -",
        "  Q2 (5, 5]                    0        -        -  -",
        "  Q3 (5, 9]                    1   1.0000   1.0000  +0.0000 "
        "[+0.0000, +0.0000]",
    ]
    kept = make_ranking([1], filter_seen=False)
    assert "items of the history kept" in comparison_table(kept, kept).protocol


def test_csv_has_every_row(tmp_path):
    path = tmp_path / "table.csv"
    strata = quartile_strata([5, 5, 9], "count")
    table = comparison_table(
        make_ranking([1, 20, 4]),
        make_ranking([1, 2, 40]),
        names=("plain", "bft"),
        strata=[strata],
    )
    table.to_csv(path)
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(table.rows)
    assert lines[0]["metric"] == "hr@10"
    assert float(lines[0]["plain"]) == pytest.approx(2 / 3)
    assert float(lines[0]["difference"]) == 0.0
    assert float(lines[0]["low"]) == table.rows[0].interval.low
    empty = [line for line in lines if line["num_users"] == "0"]
    assert empty and all(line["difference"] == "" for line in empty)


def test_rankings_read_from_files_compare_with_fresh_ones(tmp_path):
    ranking = make_ranking([1, 20, 4])
    ranking.to_csv(tmp_path / "ranks.csv")
    loaded = Ranking.from_csv(tmp_path / "ranks.csv")
    table = comparison_table(loaded, ranking)
    assert [row.interval.difference for row in table.rows] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"targets": np.array([1, 3])}, "different `targets`"),
        ({"users": np.array([1, 0])}, "different `users`"),
        ({"history_lengths": np.array([3, 4])}, "`history_lengths`"),
        ({"num_items": 9}, "same `num_items`. Received: 1500 and 9"),
        ({"filter_seen": False}, "same `filter_seen`"),
    ],
)
def test_rankings_of_different_tasks_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        comparison_table(make_ranking([1, 2]), make_ranking([1, 2], **kwargs))


def test_strata_of_other_users_are_refused():
    ranking = make_ranking([1, 2])
    with pytest.raises(ValueError, match="'count' with 3 users"):
        comparison_table(
            ranking, ranking, strata=[quartile_strata([1, 2, 3], "count")]
        )


@pytest.mark.parametrize("labels", [[], ["b"], ["b", "a"]])
def test_runs_must_pair(labels):
    first = {label: make_ranking([1]) for label in "ab" if labels}
    second = {label: make_ranking([1]) for label in labels}
    with pytest.raises(ValueError, match="the same runs in the same order"):
        comparison_table(first, second)


def test_rankings_of_nobody_are_refused():
    nobody = make_ranking([1]).where(np.array([False]))
    with pytest.raises(ValueError, match="at least one user"):
        comparison_table(nobody, nobody)
