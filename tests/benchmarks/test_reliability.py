import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def reliability(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("reliability")


@pytest.mark.any_backend
def test_compares_each_model_and_seed(reliability, tmp_path, capsys):
    options = ["--quick", "--models", "bft-sasrec:light", "--seeds", "1"]
    reliability.main([*options, "--output", str(tmp_path)])
    assert (tmp_path / "reliability.png").read_bytes()[:4] == b"\x89PNG"
    with open(tmp_path / "reliability.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["score"] for row in rows[:2]] == [
        "log count",
        "item's log prior precision",
    ]
    assert len(rows) == 2 + 2 * len(reliability.TRACED_CLICKS)
    assert all(0 <= float(row["auc"]) <= 1 for row in rows)
    assert "bft-sasrec:light  layer 1 gain  auc 0." in capsys.readouterr().out

    # Nobody was trained again.
    reliability.main([*options, "--output", str(tmp_path)])
    assert "Trained before" in capsys.readouterr().out


def test_a_known_score_of_items(reliability):
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 100, 500)
    truth = rng.random(500)
    perfect = reliability.of_items(truth, truth, counts)
    assert perfect == pytest.approx(
        {"pearson": 1, "spearman": 1, "pearson_given_count": 1, "auc": 1}
    )
    # A score that is the count and a tenth of the truth: the count hides it.
    mixed = reliability.of_items(np.log(counts) + 0.1 * truth, truth, counts)
    assert mixed["pearson"] < 0.2 and mixed["pearson_given_count"] > 0.99


def test_clicks_are_those_of_the_histories(reliability):
    data, made_up = reliability.make_data(3, 40, 20)
    for known, history, user in zip(
        reliability._by_user(data, made_up.reliability),
        data.split.test_histories,
        data.split.users,
        strict=True,
    ):
        rows = data.interactions.user_codes == user
        np.testing.assert_array_equal(
            data.interactions.item_codes[rows][:-1], history
        )
        assert len(known) == len(history) + 1
