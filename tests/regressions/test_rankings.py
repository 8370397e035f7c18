"""Rankings of every user, in which ties help nobody."""

import numpy as np
import pytest

from keras_bft.evaluation import rank_targets

NUM_ITEMS = 5


def test_no_user_is_left_out_of_a_large_evaluation():
    # Programs of research draw ten thousand users.
    users = 10_050
    targets = 1 + np.arange(users) % NUM_ITEMS
    histories = [[1 + target % NUM_ITEMS] for target in targets]
    ranking = rank_targets(
        lambda rows: np.tile(np.arange(NUM_ITEMS + 1.0), (len(rows), 1)),
        histories,
        targets,
        verbose=False,
    )
    # Item 5 is first. Only the target 5 has the best item that is left, and
    # the target 4 is second, since 5 has been seen there.
    expected = np.array([4, 3, 2, 1, 1])[targets - 1]
    np.testing.assert_array_equal(ranking.ranks, expected)


@pytest.mark.parametrize("filter_seen", [False, True])
def test_a_model_that_tells_nothing_apart_gets_no_more_than_chance(filter_seen):
    # Wherever the target stands among the items, and whatever was seen.
    targets = np.arange(1, NUM_ITEMS + 1)
    histories = [[1 + target % NUM_ITEMS] for target in targets]
    ranking = rank_targets(
        lambda rows: np.full((len(rows), NUM_ITEMS + 1), 0.5),
        histories,
        targets,
        filter_seen=filter_seen,
        verbose=False,
    )
    np.testing.assert_array_equal(ranking.ranks, 2.5 if filter_seen else 3.0)
    assert ranking.hit_rate(1) == 0.0


@pytest.mark.parametrize("score", [0.5, 1e6])
def test_scores_that_differ_in_their_last_bit_are_no_ties(score):
    scores = np.full((2, NUM_ITEMS + 1), score, "float32")
    scores[0, 3] = np.nextafter(scores[0, 0], np.float32(np.inf))
    scores[1, 3] = np.nextafter(scores[1, 0], np.float32(0.0))
    ranking = rank_targets(lambda _: scores, [[1], [1]], [3, 3], verbose=False)
    # Item 1 was seen; with the same score as others it takes no place.
    assert ranking.ranks.tolist() == [1, 4]
