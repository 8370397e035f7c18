import itertools

import numpy as np
import pytest

from keras_bft.evaluation import bootstrap
from keras_bft.evaluation import paired_bootstrap

pytestmark = pytest.mark.any_backend


def test_difference_is_second_minus_first():
    interval = paired_bootstrap([1, 0, 0, 0], [1, 1, 1, 0])
    assert interval.difference == 0.5
    assert interval.low < 0.5 < interval.high
    assert interval.num_users == 4
    assert interval.confidence == 0.95
    assert interval.num_resamples == 10_000


def test_quantiles_match_all_resamples_of_a_small_sample():
    # 5 users have 5^5 equally likely resamples: the exact distribution.
    first = np.array([0.0, 0.1, 0.2, 0.7, 0.3])
    second = np.array([0.5, 0.1, 0.9, 0.1, 0.8])
    differences = second - first
    exact = [
        differences[list(users)].mean()
        for users in itertools.product(range(5), repeat=5)
    ]
    interval = paired_bootstrap(
        first, second, num_resamples=200_000, confidence=0.8
    )
    np.testing.assert_allclose(
        [interval.low, interval.high], np.quantile(exact, [0.1, 0.9]), atol=0.01
    )


def test_agrees_with_plain_resampling_of_indices():
    rng = np.random.default_rng(1)
    first = rng.random(400) < 0.1
    second = np.where(rng.random(400) < 0.1, ~first, first)
    differences = second.astype(float) - first
    users = rng.integers(0, 400, size=(40_000, 400))
    expected = np.quantile(differences[users].mean(axis=1), [0.025, 0.975])
    interval = paired_bootstrap(first, second, num_resamples=40_000)
    np.testing.assert_allclose(
        [interval.low, interval.high], expected, atol=0.0026
    )


def test_pairing_cancels_what_the_models_share():
    first = np.random.default_rng(0).normal(size=1000)
    interval = paired_bootstrap(first, first + 0.25, num_resamples=500)
    np.testing.assert_allclose([interval.low, interval.high], 0.25, rtol=1e-12)


@pytest.mark.parametrize("decimals", [0, 8])
def test_the_seed_decides_and_the_chunk_does_not(monkeypatch, decimals):
    # Rounded to integers few differences are distinct, else all are.
    pair = np.random.default_rng(2).normal(size=(2, 200)).round(decimals)
    reference = paired_bootstrap(*pair, num_resamples=300, seed=3)
    other = paired_bootstrap(*pair, num_resamples=300, seed=4)
    assert paired_bootstrap(*pair, num_resamples=300, seed=3) == reference
    monkeypatch.setattr(bootstrap, "_CHUNK", 1000)
    chunked = paired_bootstrap(*pair, num_resamples=300, seed=3)
    np.testing.assert_allclose(
        [chunked.low, chunked.high], [reference.low, reference.high], rtol=1e-12
    )
    assert other.difference == reference.difference
    assert other.low != reference.low


def test_both_ways_to_draw_give_the_same_interval(monkeypatch):
    rng = np.random.default_rng(5)
    pair = rng.choice([0, 0.3, 1.7, np.pi], size=(2, 400))
    counted = paired_bootstrap(*pair, num_resamples=50_000)
    monkeypatch.setattr(bootstrap, "_BINOMIAL_COST", 1000)
    drawn = paired_bootstrap(*pair, num_resamples=50_000)
    assert drawn != counted
    np.testing.assert_allclose(
        [drawn.low, drawn.high], [counted.low, counted.high], atol=0.006
    )


def test_one_user_has_no_spread():
    interval = paired_bootstrap([0.25], [1.0])
    assert (interval.low, interval.difference, interval.high) == (0.75,) * 3


def test_text_has_difference_and_ends():
    assert str(paired_bootstrap([0.5], [0.25])) == "-0.2500 [-0.2500, -0.2500]"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"first": [1, 2]}, "equally long"),
        ({"first": [], "second": []}, "not empty"),
        ({"second": [[1], [2], [3]]}, "one-dimensional"),
        ({"second": [1, np.nan, 3]}, "2.0 and nan for user 1"),
        ({"num_resamples": 0}, "num_resamples=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"confidence": 95}, "confidence=95"),
    ],
)
def test_wrong_input_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(**{"first": [1, 2, 3], "second": [1, 2, 3]} | kwargs)
