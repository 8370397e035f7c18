"""Saved states and models that are damaged or made to harm."""

import io
import json
import zipfile

import keras
import numpy as np
import pytest

from keras_bft.models import SASRec
from keras_bft.models import UserState
from tests.test_packed_files import Executed


def make_model():
    return SASRec(num_items=20, max_length=4, embedding_dim=8, num_layers=1)


@pytest.fixture(scope="module")
def arrays():
    """Arrays of the saved state of two users."""
    file = io.BytesIO()
    make_model().start([[3, 5, 7], [2]]).save(file)
    with np.load(io.BytesIO(file.getvalue())) as stored:
        return dict(stored)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lengths", None, "`lengths` is missing"),
        ("lengths", [3, -1], "must not be negative"),
        ("lengths", [2**62, 2**62], "`items` must be integers of shape"),
        ("lengths", [3.0, 1.0], "`lengths` must be integers"),
        ("lengths", [[3], [1]], "`lengths` must be integers"),
        ("items", [3, 5, 7], r"`items` must be integers of shape \(4,\)"),
        ("items", [3, 5, 7, 0], "`items` must be 1 or larger"),
        ("window_lengths", [4, 1], "must not exceed `lengths`"),
        ("window_lengths", [3, -1], "must not exceed `lengths`"),
        ("states", np.zeros((3, 8)), "`states` must be floats of shape"),
        ("states", np.array([["a"], ["b"]]), "`states` must be floats"),
        ("restart_length", [1, 2], "`restart_length` must be integers"),
        ("log_precisions", np.zeros((2, 9)), "`log_precisions` must be"),
        ("timestamps", [1, 2, 3], "`timestamps` must be integers"),
        ("cache/2/key", np.zeros((2, 4, 8)), "must have every layer"),
        ("cache/x/key", np.zeros((2, 4, 8)), "no array of a user state"),
        ("cache/0/key", np.zeros((3, 4, 8)), "`cache/0/key` must be"),
        ("items", np.array([Executed()], object), "pickled objects"),
    ],
)
def test_states_that_do_not_fit_together(
    arrays, tmp_path, name, value, message
):
    changed = {
        k: v for k, v in {**arrays, name: value}.items() if v is not None
    }
    np.savez(tmp_path / "x.npz", allow_pickle=True, **changed)
    with pytest.raises(ValueError, match=message):
        UserState.load(tmp_path / "x.npz")
    assert not Executed.happened


def test_states_that_are_half_written(arrays, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    state = UserState.load(tmp_path / "x.npz")
    assert [history.tolist() for history in state.histories] == [[3, 5, 7], [2]]
    whole = (tmp_path / "x.npz").read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ValueError, match="whole .npz file.*a BytesIO"):
            UserState.load(io.BytesIO(whole[:size]))


def rewritten(path, name, content):
    """Puts another content into a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, old in entries.items():
            archive.writestr(entry, content(old) if entry == name else old)


def test_keras_files_are_checked_by_keras(tmp_path):
    path = tmp_path / "model.keras"

    model = make_model()
    model.build((None, 4))

    def refused(name, content, message):
        model.save(path)
        rewritten(path, name, content)
        with pytest.raises((ValueError, OSError, TypeError), match=message):
            keras.saving.load_model(path)

    def with_lambda(config):
        harm = keras.layers.Lambda(lambda x: Executed.happened.append(1))
        content = json.loads(config)
        content["config"]["item_embedding"] = json.loads(
            json.dumps(keras.saving.serialize_keras_object(harm))
        )
        return json.dumps(content).encode()

    refused("config.json", with_lambda, "safe_mode|[Ll]ambda")
    refused("model.weights.h5", lambda old: old[: len(old) // 2], "open file")
    refused(
        "config.json",
        lambda old: old[: len(old) // 2],
        "string|delimiter|Expect",
    )
    assert not Executed.happened
