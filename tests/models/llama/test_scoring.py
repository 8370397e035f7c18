"""Scores against the log-probabilities of transformers."""

import numpy as np
import pytest

from tests.layers.layer_checks import arrays
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import inputs_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_logits


def log_probabilities(ids):
    """Log-probability of each token but the first, by transformers."""
    logits = transformers_logits("grouped", ids)
    norm = np.log(np.exp(logits).sum(-1))
    chosen = np.take_along_axis(logits[:, :-1], ids[:, 1:, None], -1)[..., 0]
    return chosen - norm[:, :-1]


@pytest.mark.parametrize("options", [{}, {"bayesian": False}], ids=str)
def test_likelihood_is_that_of_transformers(options):
    # Two batches, of which the last is not full.
    ids = make_ids(B + 2, T)
    scores = make_lm(**options).score(ids, batch_size=B)
    assert np.isnan(scores.log_likelihood[:, 0]).all()
    np.testing.assert_allclose(
        scores.log_likelihood[:, 1:], log_probabilities(ids), atol=1e-5
    )
    if options:
        assert scores.log_precision is None and scores.gain is None
    else:
        assert scores.log_precision.shape == (B + 2, T)
        assert scores.gain.shape == (B + 2, 2, T)


def test_nothing_predicts_padding_and_first_tokens():
    ids = make_ids(B, T)
    mask = np.ones((B, T), bool)
    mask[0, :3], mask[1, 7:], mask[2] = False, False, False
    scores = make_lm().score(ids, mask).log_likelihood
    want = np.full((B, T), np.nan)
    want[:1, 4:] = log_probabilities(ids[:1, 3:])
    want[1:2, 1:7] = log_probabilities(ids[1:2, :7])
    np.testing.assert_allclose(scores, want, atol=1e-5)


def test_packed_rows_are_scored_apart():
    ids = make_ids(B, T)
    segments = np.array([[1] * 5 + [2] * 4 + [0] * 3] * B)
    scores = make_lm().score(ids, segments).log_likelihood
    want = np.full((B, T), np.nan)
    want[:, 1:5] = log_probabilities(ids[:, :5])
    want[:, 6:9] = log_probabilities(ids[:, 5:9])
    np.testing.assert_allclose(scores, want, atol=1e-5)


def test_precision_and_gain_are_the_filters():
    lm, ids = make_filter(), make_ids(B, T)
    scores = lm.score(ids)
    _, log_precision = arrays(lm.backbone.encode(**inputs_of(ids)))
    np.testing.assert_allclose(
        scores.log_precision, np.log(np.exp(log_precision).mean(-1)), atol=1e-5
    )
    assert (scores.gain > 0).all() and (scores.gain < 1).all()
    assert scores.gain.std() > 0.001
    np.testing.assert_allclose(make_lm().score(ids).gain, 1.0)


def test_low_precision_is_scored():
    ids = make_ids(B, T)
    scores = make_lm(dtype="bfloat16").score(ids)
    assert scores.log_likelihood.dtype == "float32"
    error = scores.log_likelihood[:, 1:] - log_probabilities(ids)
    assert np.abs(error).mean() < 0.05
    assert scores.log_precision.dtype == scores.gain.dtype == "float32"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((make_ids(T),), r"Received: token_ids of shape \(12,\)"),
        ((make_ids(B, T), np.ones((B, 3))), r"padding_mask of shape \(3, 3\)"),
        ((make_ids(B, T) + 90,), "`token_ids` must be from 0 to 95"),
        ((make_ids(B, T) - 90,), "`token_ids` must be from 0 to 95"),
        ((make_ids(B, T), None, 0), "`batch_size` must be a positive"),
        ((np.zeros((0, T), int),), "at least one row"),
        ((np.ones((B, T)) * 0.5,), "`token_ids` must be integers"),
    ],
    ids=range(7),
)
def test_wrong_inputs_are_named(arguments, error):
    lm = make_lm()
    with pytest.raises(ValueError, match=error):
        lm.score(*arguments)
