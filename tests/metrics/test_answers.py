import numpy as np
import pytest

from keras_bft.metrics import exact_match
from keras_bft.metrics import normalize_answer
from keras_bft.metrics import score_answers
from keras_bft.metrics import token_f1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", "cat"),
        ("  an   apple a day. ", "apple day"),
        ("Theatre, another", "theatre another"),
        ("U.S.-based", "usbased"),
        ("€5 – é", "€5 – é"),
        ("a", ""),
    ],
)
def test_normalisation_is_that_of_squad(text, expected):
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "em", "f1"),
    [
        ("the Rhine", ["Rhine"], 1.0, 1.0),
        ("Rhine river", ["Rhine", "Danube"], 0.0, 2 / 3),
        ("Danube", ["Rhine", "the Danube!"], 1.0, 1.0),
        ("x y", ["z"], 0.0, 0.0),
        # Each word counts once for each of its occurrences.
        ("no no no", ["no no yes"], 0.0, 2 / 3),
        ("", ["Rhine"], 0.0, 0.0),
        # SQuAD 2.0: no answer is right where there is none.
        ("", [], 1.0, 1.0),
        ("Rhine", [], 0.0, 0.0),
    ],
)
def test_exact_match_and_f1(prediction, answers, em, f1):
    assert exact_match(prediction, answers) == em
    assert token_f1(prediction, answers) == pytest.approx(f1)


def test_scores_of_many_and_their_errors():
    scores = score_answers(["the Rhine", "no"], [["Rhine"], ["no no"]])
    np.testing.assert_allclose(scores.exact_match, [1.0, 0.0])
    np.testing.assert_allclose(scores.f1, [1.0, 2 / 3])
    with pytest.raises(ValueError, match="1 predictions and 2 questions"):
        score_answers(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="must be a list.*'Rhine'"):
        exact_match("Rhine", "Rhine")
