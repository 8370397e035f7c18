import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import Passage
from keras_bft.data import Question
from keras_bft.data import mix_distractors
from keras_bft.data import read_questions

DATA = os.environ.get("KERAS_BFT_DATA")

SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Faust",
            "paragraphs": [
                {
                    "context": "Goethe wrote Faust in Weimar.",
                    "qas": [
                        {
                            "id": "a1",
                            "question": "Who wrote Faust?",
                            "answers": [
                                {"text": "Goethe", "answer_start": 0},
                                {"text": "Goethe", "answer_start": 0},
                            ],
                        },
                        {
                            "id": "a2",
                            "question": "Who wrote Hamlet?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
    ],
}


def test_squad_as_published(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(SQUAD, indent=1))
    passage = "Goethe wrote Faust in Weimar."
    assert read_questions(path) == [
        Question(
            "Who wrote Faust?", ("Goethe",), (Passage(passage, "Faust"),), "a1"
        ),
        Question(
            "Who wrote Hamlet?", (), (Passage(passage, "Faust", False),), "a2"
        ),
    ]


def test_lines_of_squad_and_of_retrievers(tmp_path):
    lines = [
        {"question": "q1", "context": "c", "answer": "a"},
        {"question": "q2", "context": "c", "answers": {"text": ["a", "b"]}},
        {"question": "q3", "answers": ["a"], "title": "t", "passage": "p"},
        {
            "id": 7,
            "question": "q4",
            "answers": ["a"],
            "ctxs": [
                {"title": "t", "text": "p", "has_answer": True},
                {"text": "o", "has_answer": False},
            ],
        },
    ]
    path = tmp_path / "lines.jsonl.gz"
    text = "\ufeff" + "\r\n".join(map(json.dumps, lines)) + "\r\n\r\n"
    path.write_bytes(gzip.compress(text.encode()))
    assert read_questions(path) == [
        Question("q1", ("a",), (Passage("c"),)),
        Question("q2", ("a", "b"), (Passage("c"),)),
        Question("q3", ("a",), (Passage("p", "t"),)),
        Question(
            "q4", ("a",), (Passage("p", "t"), Passage("o", "", False)), "7"
        ),
    ]


GOOD = '{"question": "q", "context": "c", "answer": "a"}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "file is empty"),
        (f"{GOOD}\nnot json", "line 2 is no JSON"),
        ("[1]", "must be a JSON object"),
        (
            '{"question": "q", "answer": "a"}',
            r"line 1 has no `context`.*answer",
        ),
        ('{"context": "c", "answer": "a"}', "has no `question`"),
        ('{"question": 3, "context": "c", "answer": "a"}', "`question`.*str"),
        ('{"question": "q", "context": "c"}', "`answers` must be.*list"),
        ('{"question": "q", "context": "c", "answers": [1]}', "`answers`.*str"),
        (
            '{"question": "q", "answers": ["a"], "ctxs": [{"text": "t"}]}',
            r"ctxs\[0\] has no `has_answer`",
        ),
        ('{"data": [{"title": "t"}]}', r"data\[0\] has no `paragraphs`"),
        ('{"data": [{"paragraphs": [{"context": ""}]}]}', "has no `qas`"),
        ('{"data": {"a": 1}}', "`data` must be of type list"),
    ],
)
def test_bad_files_name_the_place(tmp_path, content, message):
    path = tmp_path / "questions.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_questions(path)


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(GOOD.replace("q", "ü").encode("latin-1"))
    with pytest.raises(ValueError, match="must be UTF-8"):
        read_questions(path)


def retrieved(number, count=3):
    passages = [Passage(f"o{i}", has_answer=False) for i in range(count)]
    passages[1:1] = [Passage("gold"), Passage("second gold")]
    return Question(f"q{number}", ("a",), tuple(passages))


def test_gold_passage_among_the_best_distractors():
    questions = [retrieved(number) for number in range(300)]
    mixed = mix_distractors(questions, 2, seed=4)
    places = []
    for question in mixed:
        assert sorted(p.text for p in question.passages) == ["gold", "o0", "o1"]
        places.append([p.text for p in question.passages].index("gold"))
    # Uniform: 100 each, with a standard deviation of 8.
    assert (np.abs(np.bincount(places) - 100) < 33).all()
    assert mix_distractors(questions, 2, seed=4) == mixed
    assert mix_distractors(questions[:9], 2, seed=4) == mixed[:9]
    assert mix_distractors(questions, 2, seed=5) != mixed
    [alone] = mix_distractors(questions[:1], 0)
    assert [p.text for p in alone.passages] == ["gold"]


def test_questions_without_the_passages_are_named():
    without = Question("why?", ("a",), (Passage("o", has_answer=False),))
    with pytest.raises(ValueError, match=r"question 1, 'why\?'"):
        mix_distractors([retrieved(0), without], 1)
    with pytest.raises(ValueError, match="4 passages without.*with 3"):
        mix_distractors([retrieved(0)], 4)
    with pytest.raises(ValueError, match="num_distractors=-1"):
        mix_distractors([retrieved(0)], -1)


@pytest.mark.skipif(not DATA, reason="KERAS_BFT_DATA is not set")
@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("squad_4330", 4330, "July, August, and September"),
        ("xquad_en_1190", 1190, "308"),
        ("nq_retrieved", 1000, "Jesus Christ"),
        ("nq_oracle_2655", 2655, "Wilhelm Conrad Röntgen"),
    ],
)
def test_real_files(name, count, first):
    questions = read_questions(Path(DATA, "llm", f"{name}.jsonl.gz"))
    assert len(questions) == count
    assert questions[0].answers[0] == first
    assert all(q.text and q.answers and q.passages for q in questions)
    if name == "nq_retrieved":
        hard = [q for q in questions if q.gold and len(q.distractors) >= 4]
        assert len(hard) == 30
        assert all(len(q.passages) == 5 for q in mix_distractors(hard, 4))
