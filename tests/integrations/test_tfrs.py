"""The adapter for TensorFlow Recommenders, in processes of its own.

TFRS needs a Keras 2 that is chosen before TensorFlow is imported, so no test
can share this process. The checks of one scenario share theirs.
"""

import ast
import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="needs TensorFlow"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow_recommenders") is None,
        reason="needs tensorflow-recommenders",
    ),
]
FOLDER = Path(__file__).parent / "scenarios"
# Those of a group share a process.
GROUPS = {
    "imports": ("imports",),
    "models": (
        "variables",
        "layer",
        "training",
        "checkpoints",
        "indices",
        "readme",
    ),
}
REPOSITORY = FOLDER.parents[2]
PACKAGE = "tests.integrations.scenarios"


def checks_of(scenario):
    """Names of the checks in a scenario, which cannot be imported here."""
    tree = ast.parse((FOLDER / f"{scenario}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    ]


def run(module, *arguments, **environment):
    """Runs a module of the scenarios in a new process."""
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"} | environment
    environment.pop("TF_USE_LEGACY_KERAS", None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def report_of(tmp_path_factory):
    """Runs groups, each once, and gives their folder, outcomes and output."""

    @functools.cache
    def report_of(group):
        folder = tmp_path_factory.mktemp(group)
        result = run(PACKAGE, *GROUPS[group], CHECK_FOLDER=str(folder))
        report = folder / "report.json"
        outcomes = json.loads(report.read_text()) if report.exists() else {}
        return folder, outcomes, result.stdout + result.stderr

    return report_of


@pytest.mark.parametrize(
    ("group", "check"),
    [
        (group, f"{scenario}.{check}")
        for group, scenarios in GROUPS.items()
        for scenario in scenarios
        for check in checks_of(scenario)
    ],
)
def test_check(report_of, group, check):
    _, outcomes, output = report_of(group)
    assert check in outcomes, f"It did not get there.\n{output[-4000:]}"
    outcome, details = outcomes[check]
    if outcome == "skipped":
        pytest.skip(details)
    assert outcome == "passed", f"{details}\n{output[-2000:]}"


def test_an_index_is_served_without_keras_and_without_this_library(report_of):
    folder, _, _ = report_of("models")
    # By its path, in another folder, so that this library is out of reach.
    result = subprocess.run(
        [sys.executable, str(FOLDER / "serving.py"), str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "served 6\n"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_trained_tower_loads_on_other_backends(report_of, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    folder, _, _ = report_of("models")
    module = f"{PACKAGE}.other_backend"
    result = run(module, str(folder), KERAS_BACKEND=backend)
    assert result.returncode == 0, result.stderr
