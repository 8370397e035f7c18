"""The benchmark of serving runs and measures what it says."""

import csv
import runpy
import sys
from pathlib import Path

import keras

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serving.py"


def test_quick_run_writes_times_and_memory(tmp_path, monkeypatch, capsys):
    output = tmp_path / "serving.csv"
    monkeypatch.setattr(
        sys, "argv", [str(SCRIPT), "--quick", "--output", str(output)]
    )
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["backend"] for row in rows} == {keras.backend.backend()}
    timed = [row for row in rows if row["requests"]]
    assert [(row["num_items"], row["what"]) for row in timed] == [
        (num_items, what)
        for num_items in ("40", "60")
        for what in ("full", "incremental", "window full", "scores alone")
    ]
    for row in timed:
        assert 0 < float(row["p50_ms"]) <= float(row["p99_ms"])
    memory = {row["what"]: row for row in rows if row["memory_mib"]}
    assert list(memory) == ["recommend, 4 users", "rank_targets, 4 users"]
    for row in memory.values():
        assert row["num_items"] == "60"
        # Not above zero at this size: other tests' memory may be given back.
        assert abs(float(row["memory_mib"])) < 2048
    assert "p99" in capsys.readouterr().out
