"""The benchmark of the decoder runs and measures what it says."""

import csv
import runpy
import sys
from pathlib import Path

import keras

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "decoder.py"


def test_quick_run_writes_every_ratio(tmp_path, monkeypatch, capsys):
    output = tmp_path / "decoder.csv"
    monkeypatch.setattr(
        sys, "argv", [str(SCRIPT), "--quick", "--output", str(output)]
    )
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["backend"] for row in rows} == {keras.backend.backend()}
    assert len({(row["phase"], row["model"]) for row in rows}) == 6
    for row in rows:
        if row["model"] == row["relative_to"]:
            assert float(row["ratio"]) == 1.0
    assert "filter, strength 1" in capsys.readouterr().out
