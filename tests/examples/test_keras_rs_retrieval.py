import importlib
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bft
from keras_bft.evaluation import rank_targets
from tests.examples.circle import write_circle

pytest.importorskip("keras_rs")

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_LENGTH = 4


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("keras_rs_retrieval")


def test_trains_evaluates_saves_and_asks(example, tmp_path, capsys):
    output = tmp_path / "out"
    options = write_circle(tmp_path)
    options += ["--output", str(output), "--max-length", str(MAX_LENGTH)]
    options += ["--epochs", "25", "--patience", "25"]
    options += ["--learning-rate", "0.03", "--dropout", "0"]
    example.main([*options, "--k", "3", "--hard-negatives", "20"])
    text = capsys.readouterr().out
    assert "num_items=20" in text and "2 categories" in text
    assert "BFT minus plain" in text
    metrics = json.loads((output / "metrics.json").read_text())
    interactions = keras_bft.data.Interactions.load(output / "interactions")
    split = keras_bft.data.leave_one_out(interactions.sequences())
    models = {}
    for name in ("plain", "BFT"):
        assert metrics[name]["hr@5"] > 0.9
        model = keras.saving.load_model(output / f"{name.lower()}.keras")
        assert model.get_config()["bayesian"] is (name == "BFT")
        ranking = rank_targets(
            model, split.test_histories, split.test_targets, verbose=False
        )
        assert ranking.summary() == pytest.approx(metrics[name])
        models[name] = model

    # What was answered is what the model recommends. The circle goes on.
    history = split.test_histories[0]
    items, scores = models["BFT"].recommend([history], k=3)
    names = interactions.decode(items[0])
    answer = text.split("Asked anew")[1].splitlines()[1:4]
    assert [line.split("\t")[0] for line in answer] == names.tolist()
    np.testing.assert_allclose(
        [float(line.split("\t")[1]) for line in answer], scores[0], atol=1e-3
    )
    named = interactions.decode(history).tolist()
    assert names[0] == f"item-{(int(named[-1].split('-')[1]) + 1) % 20}"
    example.main(["--output", str(output), "--k", "3", "--ask", *named])
    assert capsys.readouterr().out.splitlines() == answer
    with pytest.raises(SystemExit, match="Unknown items: item-20, no."):
        example.main(["--output", str(output), "--ask", "no", "item-20"])
