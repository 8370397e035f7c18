import csv
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from keras_bft.data import read_questions
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.tokenizer_folders import write_byte_level

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def noisy_sft(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("noisy_sft")


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.any_backend
def test_runs_reports_and_goes_on(noisy_sft, tmp_path, capfd):
    folder = write_byte_level(tmp_path / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    output = tmp_path / "study"
    options = ["--noise", "0.3", "--seeds", "1", "--output", str(output)]
    passed = [
        *("--quick", "--checkpoint", str(folder), "--max-length", "256"),
        *("--arms", "sft", "bft", "--epochs", "1"),
    ]
    noisy_sft.main([*options, "--", *passed])
    rows = read_csv(output / "summary.csv")
    assert [row["arm"] for row in rows] == ["sft", "bft"]
    run = {
        row["arm"]: row
        for row in read_csv(output / "noise-0.3" / "seed0" / "summary.csv")
    }
    for row in rows:
        assert row["condition"] == "noise-0.3" and row["questions"] == "8"
        assert row["f1"] == run[row["arm"]]["f1"]
        assert int(row["tokens"]) > 1000
    assert "[" in rows[1]["f1 - sft"] and not rows[0]["f1 - sft"]
    report = (output / "report.md").read_text()
    assert "noise-0.3" in report and "--quick" in report
    for name in ("f1.png", "sinks.png"):
        assert (output / name).read_bytes()[:4] == b"\x89PNG"
    inside = read_csv(output / "mechanism.csv")
    assert [row["arm"] for row in inside] == ["checkpoint", "sft", "bft"]
    bft = output / "noise-0.3" / "seed0" / run["bft"]["run"]
    areas = {row["score"]: row["auc"] for row in read_csv(bft / "roc.csv")}
    area = inside[2]["AUC of low precision"]
    assert area == f"{float(areas['low precision']):.3f}"
    assert not inside[1]["AUC of low precision"]
    sinks = [
        [float(x) for name, x in row.items() if name != "layer"]
        for row in read_csv(bft / "sinks.csv")
    ]
    mean = np.mean(sinks)
    assert inside[2]["sink, mean of layers"] == f"{mean:.3f}"
    capfd.readouterr()
    # Finished runs are kept, and another seed has no time.
    noisy_sft.main(
        [
            *options[:2],
            "--seeds",
            "2",
            "--minutes",
            "0",
            *options[4:],
            "--",
            *passed,
        ]
    )
    assert "The time is over" in capfd.readouterr().out
    assert read_csv(output / "summary.csv") == rows


def passage(text, has_answer=False):
    return {"title": "", "text": text, "has_answer": has_answer}


def test_distractors_are_retrieved_and_gold_is_found(noisy_sft, tmp_path):
    questions = [
        ("who sang on the moon", "Ann", [passage("Ann sang", True)]),
        ("who sang on the hill", "Bob", [passage("a hill is high")]),
        ("who was on the moon", "Cid", [passage("Bob sang on the hill")]),
        ("what is rain", "water", [passage("Cid was on the moon", True)]),
    ]
    lines = [
        {"id": str(i), "question": q, "answers": [a], "ctxs": c}
        for i, (q, a, c) in enumerate(questions)
    ]
    lines[3]["ctxs"].append(passage("the moon"))
    paths = [tmp_path / "retrieved.jsonl", tmp_path / "gold.jsonl"]
    paths[0].write_text("\n".join(map(json.dumps, lines)))
    gold = {"question": lines[1]["question"], "answers": ["Bob"]}
    paths[1].write_text(json.dumps({**gold, "passage": "It was Bob."}))
    counts = noisy_sft.write_retrieved(paths, 1, tmp_path / "out")
    # The third question has no passage with its answer anywhere.
    assert counts == (2, 1)
    train = read_questions(tmp_path / "out" / "train.jsonl")
    assert [q.gold.text for q in train] == ["Ann sang", "It was Bob."]
    # Of what was retrieved for others: the one that shares most, "moon".
    assert train[0].distractors[0].text == "the moon"
    assert train[1].distractors[0].text == "a hill is high"
    [last] = read_questions(tmp_path / "out" / "evaluate.jsonl")
    assert last.distractors[0].text == "the moon"
