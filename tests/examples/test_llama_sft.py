import csv
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.llama.small_models import transformers_llama
from tests.models.llama.tokenizer_folders import write_byte_level

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def llama_sft(monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("llama_sft")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = write_byte_level(tmp_path_factory.mktemp("sft") / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    return folder


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def run_quick(llama_sft, checkpoint, folder, *options):
    llama_sft.main(
        [
            *("--quick", "--checkpoint", str(checkpoint)),
            *("--output", str(folder), "--max-length", "256"),
            *("--noise", "0.3", *options),
        ]
    )


def test_compares_trains_once_and_draws(
    llama_sft, checkpoint, tmp_path, monkeypatch, capsys
):
    arms = ("sft", "bft-raised")
    options = ("--arms", *arms, "--learning-rate", "1e-3", "1e-2")
    run_quick(llama_sft, checkpoint, tmp_path, *options)
    text = capsys.readouterr().out
    assert "answer tokens replaced" in text and "f1_minus_sft" in text
    rows = read_csv(tmp_path / "summary.csv")
    assert [row["arm"] for row in rows] == list(arms)
    for row in rows:
        folders = [tmp_path / f"{row['arm']}-lr{r}" for r in ("0.001", "0.01")]
        losses = [
            json.loads((folder / "summary.json").read_text())["held_out_loss"]
            for folder in folders
        ]
        best = folders[int(np.argmin(losses))]
        assert row["run"] == best.name
        assert float(row["held_out_loss"]) == pytest.approx(
            min(losses), abs=1e-4
        )
        answers = read_csv(best / "answers.csv")
        assert len(answers) == 8
        assert float(row["f1"]) == pytest.approx(
            np.mean([float(a["f1"]) for a in answers]), abs=1e-4
        )
        history = read_csv(best / "history.csv")
        assert len(history) == 2
        assert float(history[1]["loss"]) < float(history[0]["loss"])
        assert (best / "sinks.png").read_bytes()[:4] == b"\x89PNG"
        assert len(read_csv(best / "sinks.csv")) == 2
    # At strength 1 in the end; the ROC is that of corrupted tokens.
    assert float(history[1]["strength"]) == 1.0
    assert {r["score"] for r in read_csv(best / "roc.csv")} == {
        "low precision",
        "low likelihood",
    }
    assert any("gain" in r["value"] for r in read_csv(best / "context.csv"))

    def fail(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(llama_sft, "train", fail)
    run_quick(llama_sft, checkpoint, tmp_path, *options)
    assert read_csv(tmp_path / "summary.csv") == rows
    with pytest.raises(SystemExit, match="noise was 0.3"):
        run_quick(llama_sft, checkpoint, tmp_path, *options, "--noise", "0.1")


def test_files_are_read_and_other_arms_train(llama_sft, checkpoint, tmp_path):
    path = tmp_path / "questions.jsonl"
    lines = [
        {
            "question": f"Who is {n}?",
            "answers": [f"name {n}"],
            "ctxs": [
                {"text": f"It is name {n}.", "has_answer": True},
                {"text": "It is nobody.", "has_answer": n % 2 == 1},
            ],
        }
        for n in range(48)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    options = (
        *("--train", str(path), "--evaluate", str(path), "--distractors", "1"),
        *("--num-train", "12", "--arms", "focal", "gated", "bft"),
        *("--epochs", "1", "--lora-rank", "0", "--layers", "1", "--remat"),
    )
    run_quick(llama_sft, checkpoint, tmp_path / "output", *options)
    rows = read_csv(tmp_path / "output" / "summary.csv")
    assert [row["arm"] for row in rows] == ["focal", "gated", "bft"]
    assert "f1_minus_focal" in rows[0]
    gates = read_csv(tmp_path / "output" / "gated-lr0.0005" / "context.csv")
    assert {row["value"].split("/")[-1] for row in gates} == {"gate"}
    with pytest.raises(SystemExit, match="has 24 questions that fit"):
        run_quick(
            llama_sft,
            checkpoint,
            tmp_path / "more",
            *options,
            "--num-train",
            "100",
        )
