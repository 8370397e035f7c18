import json

import numpy as np
import pytest

from keras_bft.training import claim_folder
from keras_bft.training import fingerprint
from keras_bft.training import read_history
from keras_bft.training import replacing
from keras_bft.training import write_history


def test_other_data_are_other_settings(tmp_path):
    first = fingerprint(np.arange(5), np.arange(3))
    assert first == fingerprint(np.arange(5), np.arange(3))
    assert first != fingerprint(np.arange(5), np.arange(3)[::-1])
    settings = {"data": first, "loss": "full", "negatives": None}
    folder = tmp_path / "a" / "b"
    claim_folder(folder, settings)
    claim_folder(folder, settings)
    with pytest.raises(ValueError, match=f"data was '{first}' and now is 'x'"):
        claim_folder(folder, settings | {"data": "x"})
    assert json.loads((folder / "settings.json").read_text()) == settings


def test_a_file_half_written_does_not_take_the_place(tmp_path):
    path = tmp_path / "state"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        with replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt
    assert path.read_text() == "old"
    with replacing(path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_history_comes_back(tmp_path):
    history = [{"epoch": 1, "loss": 0.1 + 0.2}, {"epoch": 2, "loss": 1e-9}]
    write_history(history, tmp_path / "history.csv")
    assert read_history(tmp_path / "history.csv") == history
