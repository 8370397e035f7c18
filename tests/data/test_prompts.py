import numpy as np
import pytest

from keras_bft.data import Passage
from keras_bft.data import Question
from keras_bft.data import encode_questions
from keras_bft.data import format_prompt
from keras_bft.data.prompts import shorten_passage

WORDS = [f"w{i}" for i in range(60)]
WORDS[40:42] = ["Johann", "Goethe,"]
LONG = Passage(" ".join(WORDS), "Faust")
OTHER = Passage(" ".join(f"x{i}" for i in range(60)), has_answer=False)
QUESTION = Question("Who wrote it?", ("johann  goethe", "G."), (OTHER, LONG))


def words(texts):
    """Ids of words, the same for the same word."""
    return [[1000 + hash_of(word) for word in text.split()] for text in texts]


def hash_of(word):
    return int.from_bytes(word.encode(), "little") % 100003


def test_several_passages_are_numbered_and_titled():
    short = Question("Why?", ("a",), (Passage("One."), Passage("Two.", "T")))
    assert format_prompt(short) == (
        "Passage 1: One.\n\nPassage 2 (T): Two.\n\nQuestion: Why?\nAnswer:"
    )
    assert format_prompt(short, "{question} {passages}") == (
        "Why? Passage 1: One.\n\nPassage 2 (T): Two."
    )


def test_rows_are_prompt_answer_and_end():
    short = Question("Why ?", ("so it is", "b"), (Passage("One."),))
    rows = encode_questions([short, QUESTION], words, 200, [1], [2])
    prompt = [1, *words([format_prompt(short)])[0]]
    assert rows.prompts[0].tolist() == prompt
    assert rows.token_ids[0].tolist() == [*prompt, *words(["so it is"])[0], 2]
    assert rows.answer_mask[0].tolist() == [False] * len(prompt) + [True] * 4
    assert rows.num_shortened == 0
    assert [len(row) for row in rows.token_ids] == [
        len(mask) for mask in rows.answer_mask
    ]


@pytest.mark.parametrize("max_length", [18, 25, 60, 100, 130])
def test_shortening_never_drops_the_answer(max_length):
    rows = encode_questions([QUESTION], words, max_length, [1], [2])
    [ids] = rows.token_ids
    text = ids.tolist()
    answer = words(["Johann Goethe,"])[0]
    assert len(text) <= max_length and rows.num_shortened == 1
    pairs = list(zip(text, text[1:], strict=False))
    assert tuple(answer) in pairs
    # As much as fits is kept: both passages lose the same share of words.
    assert len(text) >= max_length - 5 or max_length == 18
    end = words(["Question: Who wrote it? Answer:"])[0]
    assert text[-8:-3] == end and text[-1] == 2


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, WORDS[40:42]),
        (0.1, WORDS[38:44]),
        (0.8, WORDS[12:60]),
        (1.0, WORDS),
    ],
)
def test_words_around_the_answer_are_kept(share, expected):
    shortened = shorten_passage(LONG, share, QUESTION.answers)
    assert shortened.text.split() == expected
    assert shortened.title == "Faust" and shortened.has_answer


def test_other_passages_keep_their_beginning():
    assert shorten_passage(OTHER, 0.05).text == "x0 x1 x2"
    assert shorten_passage(OTHER, 0.0).text == ""


def test_what_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="`max_length` must leave room"):
        encode_questions([QUESTION], words, 12)
    lost = Question("Who?", ("Schiller",), (LONG,))
    with pytest.raises(ValueError, match="word for word.*Schiller"):
        encode_questions([lost], words, 30)
    with pytest.raises(ValueError, match="must have an answer.*question 0"):
        encode_questions([Question("Who?", (), (LONG,))], words, 300)
    # Nothing to shorten, nothing to find.
    assert len(encode_questions([lost], words, 300).token_ids) == 1


def test_answers_at_the_ends_of_a_passage():
    for answer, expected in (("w0", WORDS[:6]), ("w59", WORDS[54:])):
        shortened = shorten_passage(LONG, 0.1, (answer,))
        assert shortened.text.split() == expected
    assert np.array_equal(
        shorten_passage(LONG, 0.1, ("w1 w2",)).text.split(), WORDS[:6]
    )
