import numpy as np
import pytest

from keras_bft.evaluation import quartile_strata


def test_distinct_values_give_equal_groups_in_order():
    values = np.random.default_rng(0).permutation(100) + 1
    strata = quartile_strata(values, "count")
    assert strata.edges.tolist() == [1, 25, 50, 75, 100]
    assert strata.index.tolist() == ((values - 1) // 25).tolist()
    assert strata.labels == (
        "Q0 [1, 25]",
        "Q1 (25, 50]",
        "Q2 (50, 75]",
        "Q3 (75, 100]",
    )


def test_equal_values_share_a_group_and_one_may_be_empty():
    strata = quartile_strata([3, 3, 3, 3, 3, 4, 9, 9], "length")
    assert strata.edges.tolist() == [3, 3, 3, 4, 9]
    assert strata.index.tolist() == [0, 0, 0, 0, 0, 2, 3, 3]
    sizes = {label: int(mask.sum()) for label, mask in strata.masks()}
    assert sizes == {
        "Q0 [3, 3]": 5,
        "Q1 (3, 3]": 0,
        "Q2 (3, 4]": 1,
        "Q3 (4, 9]": 2,
    }


def test_every_user_lies_inside_the_edges_of_the_group():
    values = np.random.default_rng(1).exponential(size=203)
    strata = quartile_strata(values, "value")
    for group in range(4):
        members = values[strata.index == group]
        assert members.max() <= strata.edges[group + 1]
        if group:
            assert members.min() > strata.edges[group]
    assert strata.edges[0] == values.min()
    assert np.bincount(strata.index).tolist() == [51, 51, 51, 50]


def test_text_shows_edges_and_sizes():
    text = str(quartile_strata([1, 2, 3, 4000], "target's training count"))
    assert text.splitlines() == [
        "target's training count",
        "  Q0 [1, 1]      1 users",
        "  Q1 (1, 2]      1 users",
        "  Q2 (2, 3]      1 users",
        "  Q3 (3, 4,000]  1 users",
    ]


@pytest.mark.parametrize("values", [[], [[1, 2]], [1, np.nan], [1, np.inf]])
def test_wrong_values_are_refused(values):
    with pytest.raises(ValueError, match="`values` must be"):
        quartile_strata(values, "count")
