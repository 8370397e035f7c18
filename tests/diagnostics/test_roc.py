import numpy as np
import pytest

from keras_bft.diagnostics import roc_curve

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_area_is_the_probability_of_a_higher_score(digits):
    """With many ties, some and none."""
    positive = RNG.random((20, 30)) < 0.2
    scores = np.round(RNG.normal(size=(20, 30)) + positive, digits)
    high, low = scores[positive][:, None], scores[~positive][None]
    want = (high > low).mean() + 0.5 * (high == low).mean()
    curve = roc_curve(scores, positive)
    assert curve.auc == pytest.approx(want, rel=1e-9)
    assert len(curve.true_positive_rate) == 1 + len(np.unique(scores))
    for rate in curve[:2]:
        assert rate[0] == 0 and rate[-1] == 1 and (np.diff(rate) >= 0).all()


def test_what_is_masked_does_not_count():
    scores = np.array([3.0, np.nan, 1.0, 2.0])
    positive = np.array([True, True, False, False])
    mask = np.array([1, 0, 1, 1])
    assert roc_curve(scores, positive, mask).auc == 1.0
    assert roc_curve(-scores, positive, mask).auc == 0.0


def test_bad_arguments():
    with pytest.raises(ValueError, match="1 NaN"):
        roc_curve([1.0, np.nan], [True, False])
    with pytest.raises(ValueError, match="2 positives of 2"):
        roc_curve([1.0, 2.0], [True, True])
    with pytest.raises(ValueError, match="must have one shape"):
        roc_curve([1.0, 2.0], [True])
