"""Measures of confidence, against sums written out and known answers."""

import numpy as np
import pytest

from keras_bft.evaluation import abstention_threshold
from keras_bft.evaluation import brier_score
from keras_bft.evaluation import expected_calibration_error
from keras_bft.evaluation import negative_log_likelihood
from keras_bft.evaluation import reliability_curve
from keras_bft.evaluation import risk_coverage

MEASURES = (
    brier_score,
    negative_log_likelihood,
    reliability_curve,
    expected_calibration_error,
    risk_coverage,
    lambda c, h: abstention_threshold(c, h, 0.5),
)


def sample(number=400, seed=0):
    """Confidences with many ties, and hits that come as often as they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 21, number) / 20
    return confidence, rng.random(number) < confidence


def test_bins_of_equal_width():
    confidence, hits = sample()
    curve = reliability_curve(confidence, hits, 10)
    assert curve.counts.sum() == len(hits)
    np.testing.assert_allclose(curve.edges, np.arange(11) / 10)
    error = 0.0
    for place in range(10):
        # In twentieths, so that an edge is an edge.
        twentieths = np.rint(20 * confidence)
        inside = (twentieths > 2 * place) & (twentieths <= 2 * place + 2)
        inside |= (place == 0) & (twentieths == 0)
        assert curve.counts[place] == inside.sum()
        means = confidence[inside].mean(), hits[inside].mean()
        assert curve.confidence[place] == pytest.approx(means[0])
        assert curve.accuracy[place] == pytest.approx(means[1])
        error += inside.mean() * abs(means[0] - means[1])
    found = expected_calibration_error(confidence, hits, 10)
    assert found == pytest.approx(error) and 0 < found < 0.1


def test_bins_of_equal_mass_keep_ties_together():
    confidence = np.array([0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.8, 0.9])
    hits = [0, 1, 0, 0, 1, 0, 1, 1]
    curve = reliability_curve(confidence, hits, 4, "mass")
    assert curve.edges.tolist() == [0.1, 0.1, 0.2, 0.4, 0.9]
    assert curve.counts.tolist() == [3, 1, 2, 2]
    np.testing.assert_allclose(curve.accuracy, [1 / 3, 0, 0.5, 1])
    # Bins without anybody say so, and count nothing.
    same = reliability_curve(np.full(3, 0.5), [1, 0, 1], 2, "mass")
    assert same.counts.tolist() == [3, 0] and np.isnan(same.accuracy[1])
    error = expected_calibration_error(np.full(3, 0.5), [1, 0, 1], 2, "mass")
    assert error == pytest.approx(2 / 3 - 0.5)


def test_order_never_matters():
    confidence, hits = sample(60)
    expected = risk_coverage(confidence, hits)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(hits))
        found = risk_coverage(confidence[order], hits[order])
        np.testing.assert_allclose(found.risk, expected.risk, rtol=1e-12)
        for binning in ("width", "mass"):
            curve = reliability_curve(confidence, hits, 7, binning)
            other = reliability_curve(
                confidence[order], hits[order], 7, binning
            )
            np.testing.assert_allclose(other.accuracy, curve.accuracy)


def test_ties_have_the_mean_risk_of_all_orders():
    confidence, hits = sample(40)
    rng = np.random.default_rng(1)
    total = np.zeros(40)
    for _ in range(4000):
        order = np.lexsort((rng.random(40), -confidence))
        total += np.cumsum(~hits[order]) / np.arange(1, 41)
    curve = risk_coverage(confidence, hits)
    np.testing.assert_allclose(curve.risk, total / 4000, atol=0.02)
    assert curve.coverage[-1] == 1 and curve.coverage[0] == 1 / 40
    assert curve.risk[-1] == pytest.approx(1 - hits.mean())
    assert curve.area == pytest.approx(curve.risk.mean())


def test_areas_of_confidences_that_say_all_or_nothing():
    _, hits = sample(50)
    perfect = risk_coverage(hits.astype(float), hits)
    assert perfect.excess_area == pytest.approx(0, abs=1e-12)
    nothing = risk_coverage(np.zeros(50), hits)
    np.testing.assert_allclose(nothing.risk, 1 - hits.mean())
    assert nothing.area > perfect.area
    worst = risk_coverage(-3.0 * hits, hits)
    assert worst.area > nothing.area
    assert worst.area - perfect.area == pytest.approx(worst.excess_area)


def test_scores_of_single_predictions():
    confidence, hits = [0.8, 0.3, 0.0, 1.0], [True, False, False, True]
    assert brier_score(confidence, hits) == pytest.approx((0.04 + 0.09) / 4)
    expected = -(np.log(0.8) + np.log(0.7)) / 4
    assert negative_log_likelihood(confidence, hits) == pytest.approx(expected)
    assert negative_log_likelihood([0.0], [True]) == np.inf
    assert negative_log_likelihood([1.0], [False]) == np.inf
    # Not lost in `1 - confidence`.
    assert negative_log_likelihood([1e-20], [False]) == pytest.approx(1e-20)
    assert str(negative_log_likelihood([1.0], [True])) == "0.0"


@pytest.mark.parametrize("hit_rate", [0.3, 0.55, 0.8, 1.0])
def test_the_lowest_threshold_that_does(hit_rate):
    confidence, hits = sample(80, seed=3)
    rates = {t: hits[confidence >= t].mean() for t in np.unique(confidence)}
    enough = [t for t, rate in rates.items() if rate >= hit_rate]
    found = abstention_threshold(confidence, hits, hit_rate)
    assert found == min(enough)


def test_a_hit_rate_out_of_reach_has_no_threshold():
    assert abstention_threshold([0.9, 0.5], [False, True], 0.6) is None
    assert abstention_threshold([0.9, 0.5], [False, True], 0.5) == 0.5
    for wrong in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="Received: hit_rate="):
            abstention_threshold([0.5], [True], wrong)


@pytest.mark.parametrize("measure", MEASURES)
def test_wrong_arguments_raise(measure):
    for confidence, hits in (([], []), ([0.5], [1, 0]), ([[0.5]], [[1]])):
        with pytest.raises(ValueError, match="Received: confidence of shape"):
            measure(confidence, hits)
    with pytest.raises(ValueError, match="Received: nan at 1, and 0 more"):
        measure([0.5, np.nan], [1, 0])
    for wrong in (2, 0.5, np.nan):
        with pytest.raises(ValueError, match=f"`hits`.*Received: {wrong} at 0"):
            measure([0.5, 0.5], [wrong, 0])


@pytest.mark.parametrize("wrong", [-0.1, 1.001, np.inf])
def test_probabilities_are_from_0_to_1(wrong):
    for measure in MEASURES[:4]:
        with pytest.raises(ValueError, match=f"from 0 to 1.*{wrong} at 1"):
            measure([0.5, wrong], [1, 0])
    # Only the order counts here.
    assert risk_coverage([0.5, wrong], [1, 0]).risk[-1] == 0.5


@pytest.mark.parametrize("wrong", [{"num_bins": 0}, {"num_bins": 1.5}])
def test_wrong_bins_raise(wrong):
    with pytest.raises(ValueError, match="Received: num_bins="):
        reliability_curve([0.5], [1], **wrong)
    with pytest.raises(ValueError, match="Received: binning='count'"):
        reliability_curve([0.5], [1], binning="count")
