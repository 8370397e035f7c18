"""The benchmarks of layers and attention run and compare what they say."""

import csv
import math
import runpy
import sys
from pathlib import Path

import keras
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "contestants"),
    [
        ("overhead", ["standard", "light", "light, token", "full"]),
        ("attention", 2 * ["dense", "blockwise"] * 3),
    ],
)
def test_quick_run_writes_ratios(script, contestants, tmp_path, monkeypatch):
    output = tmp_path / "ratios.csv"
    path = FOLDER / f"{script}.py"
    monkeypatch.setattr(
        sys, "argv", [str(path), "--quick", "--output", str(output)]
    )
    monkeypatch.syspath_prepend(str(FOLDER))
    runpy.run_path(str(path), run_name="__main__")
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    column = "form" if script == "overhead" else "attention"
    assert [row[column] for row in rows] == contestants
    assert {row["backend"] for row in rows} == {keras.backend.backend()}
    assert float(rows[0]["ratio"]) == 1.0
    for row in rows:
        lowest, ratio, highest = (
            float(row[name]) for name in ("lowest", "ratio", "highest")
        )
        assert 0 < lowest <= ratio <= highest
        assert float(row["milliseconds"]) > 0
        if keras.backend.backend() != "tensorflow":
            assert math.isfinite(float(row["mib"]))
