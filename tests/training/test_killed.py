"""Trainings whose process is killed, by nothing that Python could catch."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.training.test_resumable_training import assert_same
from tests.training.test_resumable_training import train

# What kills the process in its third epoch: amid a step, or when half of the
# checkpoint is written.
KILLERS = {
    "step": """
begin = SASRec.train_step
def train_step(self, *args, **kwargs):
    if int(self.optimizer.iterations) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return begin(self, *args, **kwargs)
SASRec.train_step = train_step
""",
    "save": """
save, saved = np.savez, []
def savez(file, **arrays):
    saved.append(file)
    if len(saved) < 3:
        return save(file, **arrays)
    whole = io.BytesIO()
    save(whole, **arrays)
    file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
np.savez = savez
""",
}
PROGRAM = """
import io, os, signal, sys
import numpy as np
import tests.conftest
from keras_bft.models import SASRec
from tests.training.test_resumable_training import train
{killer}
train(sys.argv[1])
"""


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="elsewhere a step is compiled and does not run Python",
)
@pytest.mark.parametrize("place", KILLERS)
def test_it_goes_on_as_if_it_had_not_been(place, tmp_path):
    root = Path(__file__).parents[2]
    path = tmp_path / "checkpoint.npz"
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(killer=KILLERS[place]), path],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr[-2000:]
    assert path.exists()
    assert (tmp_path / "part-checkpoint.npz").exists() == (place == "save")
    assert_same(train(path), train(tmp_path / "whole.npz"))
