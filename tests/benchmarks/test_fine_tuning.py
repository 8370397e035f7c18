"""The benchmark of fine-tuning runs and measures what it says."""

import csv
import importlib
from pathlib import Path

import keras
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.any_backend
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_quick_run_writes_a_row_for_each_arm(policy, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("fine_tuning")
    monkeypatch.setattr(module, "growth", lambda work: work() and 2e6)
    output = tmp_path / "fine_tuning.csv"
    arms = ["filter", "filter, rematerialized"]
    module.main(
        ["--quick", "--dtype", policy, "--output", str(output), "--arms", *arms]
    )
    assert keras.config.dtype_policy().name == policy
    with output.open() as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["standard", *arms]
    assert float(rows["standard"]["ratio"]) == 1.0
    for row in rows.values():
        assert float(row["seconds"]) > 0.0
        assert float(row["memory_ratio"]) == 1.0
