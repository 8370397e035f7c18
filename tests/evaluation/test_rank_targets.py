import importlib
import itertools
import re

import keras
import numpy as np
import pytest

from keras_bft.evaluation import rank_targets


def brute_force_rank(scores, history, target, filter_seen):
    """Mean place of the target over all orders that the scores allow."""
    items = [
        item
        for item in range(1, len(scores))
        if not (filter_seen and item in history)
    ]
    if target not in items:
        return float("inf")
    places = []
    for order in itertools.permutations(items):
        descending = [scores[item] for item in order]
        if all(a >= b for a, b in itertools.pairwise(descending)):
            places.append(order.index(target) + 1)
    return sum(places) / len(places)


class Table:
    """Model that has a row of scores for each history."""

    def __init__(self, scores, histories):
        self.scores = {
            tuple(history): row
            for history, row in zip(histories, scores, strict=True)
        }
        self.batches = []

    def score(self, histories):
        self.batches.append([len(history) for history in histories])
        return np.array([self.scores[tuple(h)] for h in histories])


@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_against_brute_force(filter_seen, batch_size):
    rng = np.random.default_rng(0)
    num_users, num_items = 40, 6
    # Integers from a small range: most users have ties.
    scores = rng.integers(0, 4, size=(num_users, num_items + 1)) / 2
    histories = [
        rng.integers(1, num_items + 1, size=rng.integers(0, 5))
        for _ in range(num_users)
    ]
    targets = rng.integers(1, num_items + 1, size=num_users)
    table = Table(scores, histories)
    expected = [
        brute_force_rank(
            table.scores[tuple(history)], history, target, filter_seen
        )
        for history, target in zip(histories, targets, strict=True)
    ]
    ranking = rank_targets(
        table,
        histories,
        targets,
        filter_seen=filter_seen,
        batch_size=batch_size,
        verbose=False,
    )
    assert ranking.ranks.tolist() == expected
    assert ranking.history_lengths.tolist() == [len(h) for h in histories]
    assert ranking.num_items == num_items
    assert ranking.filter_seen is filter_seen
    assert ranking.num_unhittable == sum(np.isinf(expected))
    assert (ranking.num_unhittable > 0) is filter_seen


def test_scores_are_asked_for_in_chunks_of_like_lengths():
    histories = [[1], [2, 3, 4], [], [5], [5, 4], [1, 2, 3, 4], [2, 2, 2]]
    table = Table(np.zeros((7, 7)), histories)
    ranking = rank_targets(
        table, histories, [6] * 7, batch_size=3, verbose=False
    )
    assert table.batches == [[0, 1, 1], [2, 3, 3], [4]]
    assert ranking.history_lengths.tolist() == [1, 3, 0, 1, 2, 4, 3]
    # All unseen items tie: the middle of what the history leaves.
    assert ranking.ranks.tolist() == [3, 2, 3.5, 3, 2.5, 1.5, 3]


def test_a_function_works_as_an_object_does():
    def score(histories):
        return np.array([[9.0, 1, 2, 3]] * len(histories))

    ranking = rank_targets(score, [[3], []], [1, 1], verbose=False)
    assert ranking.ranks.tolist() == [2, 3]


def test_padding_is_never_ranked():
    scores = np.array([[100.0, 1, 2], [np.nan, 1, 2]])
    ranking = rank_targets(lambda _: scores, [[], []], [2, 1], verbose=False)
    assert ranking.ranks.tolist() == [1, 2]


def test_infinite_scores_are_ranked():
    scores = np.array([[0, np.inf, -np.inf, 1.0], [0, -np.inf, -np.inf, 1.0]])
    ranking = rank_targets(lambda _: scores, [[], []], [3, 1], verbose=False)
    assert ranking.ranks.tolist() == [2, 2.5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_tensors_of_the_backend_are_ranked(dtype):
    scores = keras.ops.convert_to_tensor([[0, 3, 3, 5]], dtype=dtype)
    ranking = rank_targets(lambda _: scores, [[]], [1], verbose=False)
    assert ranking.ranks.tolist() == [2.5]


def test_a_repeated_target_is_a_miss_only_where_items_are_filtered():
    scores = np.array([[0.0, 1, 2, 3]] * 2)
    rank = {
        filter_seen: rank_targets(
            lambda _: scores,
            [[3, 3, 1], [1]],
            [3, 3],
            filter_seen=filter_seen,
            verbose=False,
        )
        for filter_seen in (True, False)
    }
    assert rank[True].ranks.tolist() == [np.inf, 1]
    assert rank[True].hit_rate(3) == 0.5
    assert rank[False].ranks.tolist() == [1, 1]


def test_nan_names_the_user_and_the_item():
    scores = np.zeros((5, 6))
    scores[3, 2] = np.nan
    scores[4, 1:] = np.nan
    with pytest.raises(
        ValueError, match=r"NaN for user dora, item 2 \(and 5 more"
    ):
        rank_targets(
            lambda histories: scores[[h[0] - 1 for h in histories]],
            [[1], [2], [3], [4], [5]],
            [1] * 5,
            batch_size=5,
            users=["ann", "bob", "cyd", "dora", "eve"],
            verbose=False,
        )


@pytest.mark.parametrize(
    ("histories", "targets", "message"),
    [
        ([[1], [2]], [1, 4], "`targets` must hold item ids from 1 to 3, "),
        ([[1], [2]], [1, 0], "Received: item 0 for user 1"),
        ([[1], [0, 2]], [1, 1], "`histories` must hold item ids from 1 to 3"),
        ([[1], [2, 4]], [1, 1], "Received: item 4 for user 1"),
        ([[1]], [1, 1], "equally long"),
        ([], [], "at least one user"),
        ([[1.5], [1]], [1, 1], "one-dimensional arrays of integers"),
        ([[1], [1]], [[1], [1]], "one-dimensional arrays of integers"),
    ],
)
def test_wrong_input_is_refused(histories, targets, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rank_targets(
            lambda rows: np.zeros((len(rows), 4)),
            histories,
            targets,
            verbose=False,
        )


def test_scores_of_a_wrong_shape_are_refused():
    for shape in [(2,), (1, 4), (2, 1)]:
        with pytest.raises(ValueError, match="Received: scores.shape="):
            rank_targets(
                lambda _, shape=shape: np.zeros(shape),
                [[1]] * 2,
                [1] * 2,
                verbose=False,
            )


def test_a_catalogue_that_changes_between_batches_is_refused():
    def score(histories):
        return np.zeros((len(histories), 4 + len(histories)))

    with pytest.raises(ValueError, match=r"here \(1, 6\)"):
        rank_targets(score, [[1]] * 3, [1] * 3, batch_size=2, verbose=False)


def test_batch_size_must_be_positive():
    with pytest.raises(ValueError, match="Received: batch_size=0"):
        rank_targets(lambda _: np.zeros((1, 3)), [[1]], [1], batch_size=0)


def test_progress_is_shown_when_asked(capsys):
    rank_targets(
        lambda histories: np.zeros((len(histories), 4)),
        [[1]] * 3,
        [2] * 3,
        batch_size=2,
    )
    assert "3/3" in capsys.readouterr().out


def test_timestamps_reach_the_model_with_their_histories():
    histories = [[1, 2, 3], [4], [2, 1]]
    times = [[10, 20, 30], [40], [20, 10]]

    def score(batch, timestamps):
        for history, stamps in zip(batch, timestamps, strict=True):
            assert stamps == [10 * item for item in history.tolist()]
        return np.tile(np.arange(6.0), (len(batch), 1))

    ranking = rank_targets(
        score, histories, [5, 5, 4], timestamps=times, verbose=False
    )
    assert ranking.ranks.tolist() == [1, 1, 2]
    with pytest.raises(ValueError, match=r"len\(timestamps\)=1"):
        rank_targets(score, histories, [5, 5, 4], timestamps=times[:1])


@pytest.mark.parametrize("told", [{}, {"num_items": 6}])
def test_fewer_users_at_a_time_where_items_are_many(told, monkeypatch):
    module = importlib.import_module("keras_bft.evaluation.rank_targets")
    histories = [[1 + user % 6] for user in range(9)]
    rng = np.random.default_rng(0)
    table = Table(rng.normal(size=(9, 7)), histories)
    targets = [1 + (user + 1) % 6 for user in range(9)]
    expected = rank_targets(table, histories, targets, verbose=False)
    assert [len(batch) for batch in table.batches] == [9]
    table.batches.clear()
    vars(table).update(told)
    monkeypatch.setattr(module, "_MAX_SCORES", 15)
    ranking = rank_targets(
        table, histories, targets, batch_size=4, verbose=False
    )
    assert ranking.ranks.tolist() == expected.ranks.tolist()
    # Until the first scores come, only the object can tell.
    first = [2, 2] if told else [4]
    assert [len(batch) for batch in table.batches] == [*first, 2, 2, 1]
