"""Guides run as they stand, each in a process of its own, at a small size."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.guides.tools import GUIDES
from tests.guides.tools import ROOT
from tests.guides.tools import read_tutobook
from tests.guides.tools import render

# Its comparisons are to hold on all backends, and one guide is TensorFlow's.
# The others run where `python -m tests` runs what needs no backend of its own.
EVERYWHERE = "kalman_filter_you_can_check"
TENSORFLOW = "tfrs_retrieval_and_serving"
PATHS = {path.stem: path for path in GUIDES}


def run(name, folder):
    """Runs a guide in an empty folder and returns what it printed."""
    fields = read_tutobook(PATHS[name]).fields
    assert {"Title", "Author", "Date created", "Description"} <= set(fields)
    assert fields["Author"] == "the keras_bft developers"
    needed = fields.get("Needs")
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{name} needs {needed}")
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "KERAS_BACKEND": fields.get("Backend", keras.backend.backend()).lower(),
        "KERAS_BFT_QUICK": "1",
        "MPLBACKEND": "agg",
    }
    # XLA need not optimise what runs once.
    if environment["KERAS_BACKEND"] == "jax":
        environment.setdefault(
            "XLA_FLAGS", "--xla_backend_optimization_level=0"
        )
    result = subprocess.run(
        [sys.executable, PATHS[name]],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert not list(Path(folder).iterdir()), "a guide leaves files behind"
    return result.stdout


def test_the_filter_is_exact(tmp_path):
    printed = run(EVERYWHERE, tmp_path)
    assert printed.count("at most") == 3
    assert printed.count("off the posterior") == 4


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TFRS runs on TensorFlow"
)
def test_tfrs_trains_and_serves(tmp_path):
    assert "served: " in run(TENSORFLOW, tmp_path)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", sorted(set(PATHS) - {EVERYWHERE, TENSORFLOW}))
def test_runs(name, tmp_path):
    assert run(name, tmp_path)


@pytest.mark.any_backend
def test_render_knows_the_guides():
    assert sorted(render.GUIDES) == sorted(PATHS)
