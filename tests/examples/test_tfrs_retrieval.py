"""The TFRS example, in a process of its own as Keras 2 has to be chosen."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bft
from tests.examples.circle import write_circle

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="needs TensorFlow"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow_recommenders") is None,
        reason="needs tensorflow-recommenders",
    ),
]
REPOSITORY = Path(__file__).parents[2]
MAX_LENGTH = 4


# Calls the example several times and prints how it refused.
DRIVER = """
import json, sys
import tfrs_retrieval
for arguments in json.loads(sys.argv[1]):
    try:
        tfrs_retrieval.main(arguments)
    except SystemExit as error:
        print("Refused:", error)
"""


def run(*calls):
    """Returns what the example prints."""
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "examples")])
    result = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(calls)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_trains_evaluates_exports_and_asks(tmp_path):
    output = tmp_path / "out"
    data = write_circle(tmp_path)
    options = ["--output", str(output), "--max-length", str(MAX_LENGTH)]
    options += ["--epochs", "12", "--learning-rate", "0.03", "--dropout", "0"]
    (tmp_path / "few.csv").write_text("item,category\nitem-1,a\n")
    text = run(
        [*data, "--max-length", "19", "--k", "2"],
        [*data, *options, "--items", str(tmp_path / "few.csv")],
        [*data, *options, "--k", "3"],
    )
    assert "Refused: 20 items are too few for --k 2 and --max-length 19" in text
    assert "few.csv has no category for 19 items, such as ['item-0'" in text
    assert "num_items=20" in text and "2 categories" in text
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["hr@5"] > 0.9
    assert f"hr@5     {metrics['hr@5']:.4f}" in text
    assert (output / "checkpoint" / "trained.index").exists()

    # What was answered, from the towers' own files with NumPy.
    interactions = keras_bft.data.read_interactions(tmp_path / "clicks.csv")
    split = keras_bft.data.leave_one_out(interactions.sequences())
    history = split.test_histories[0][-MAX_LENGTH:]
    query_tower = keras.saving.load_model(output / "query_tower.keras")
    item_tower = keras.saving.load_model(output / "item_tower.keras")
    codes = np.arange(1, 21)
    names = interactions.decode(codes)
    # Known categories are numbered by their names, from 1.
    categories = [1 + int(name.split("-")[1]) % 2 for name in names]
    vectors = item_tower.predict(
        {"item": codes, "category": np.array(categories)}, verbose=0
    )
    state = query_tower.predict(history[None], verbose=0)[0, -1]
    scores = vectors @ state
    scores[history - 1] = -np.inf
    best = np.argsort(-scores)[:3]
    answer = text.split("Asked anew")[1].splitlines()[1:4]
    expected = [f"{names[i]}\t{scores[i]:.4f}" for i in best]
    assert answer == expected
    # The circle goes on.
    last = int(interactions.decode(history[-1:])[0].split("-")[1])
    assert answer[0].startswith(f"item-{(last + 1) % 20}\t")
