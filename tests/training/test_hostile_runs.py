"""Checkpoints and run folders that are damaged or of another run."""

import json

import keras
import numpy as np
import pytest

from keras_bft.training import ResumableTraining
from keras_bft.training import claim_folder
from keras_bft.training import read_history
from tests.test_packed_files import Executed


def make_model(units=2):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units)])
    model.compile(keras.optimizers.Adam(), "mse")
    return model


def train(model, path, epochs=2):
    training = ResumableTraining(path)
    units = model.output_shape[-1]
    model.fit(
        np.ones((4, 3)),
        np.ones((4, units)),
        epochs=epochs,
        initial_epoch=training.epochs_done,
        verbose=0,
        callbacks=[training],
    )
    return training


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Arrays of a checkpoint of one epoch."""
    path = tmp_path_factory.mktemp("run") / "state.npz"
    train(make_model(), path, epochs=1)
    with np.load(path) as file:
        return dict(file)


def written(path, arrays):
    np.savez(path, allow_pickle=True, **arrays)
    return path


STATE = {"history": [{"epoch": 1}], "stopped": False, "stopping": None}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("", "valid JSON"),
        ("[]", "JSON object"),
        ("{}", "what ResumableTraining saved"),
        (STATE | {"history": 3}, "what ResumableTraining saved"),
        (STATE | {"history": [3]}, "what ResumableTraining saved"),
        (STATE | {"history": [{"epoch": "1"}]}, "what ResumableTraining saved"),
        (STATE | {"stopped": 1}, "what ResumableTraining saved"),
        (STATE | {"stopping": {}}, "what ResumableTraining saved"),
        (
            STATE | {"stopping": {"__class__": 1}},
            "what ResumableTraining saved",
        ),
        (STATE | {"more": 1}, "what ResumableTraining saved"),
    ],
)
def test_states_that_were_not_saved(saved, tmp_path, state, message):
    text = state if isinstance(state, str) else json.dumps(state)
    path = written(tmp_path / "state.npz", saved | {"state": np.array(text)})
    with pytest.raises(ValueError, match=message) as raised:
        ResumableTraining(path)
    assert str(path) in str(raised.value)


def test_a_half_written_or_pickled_checkpoint(saved, tmp_path):
    path = written(tmp_path / "state.npz", saved)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="whole .npz file.*state.npz"):
            ResumableTraining(path)
    written(path, saved | {"state": np.array([Executed()], object)})
    with pytest.raises(ValueError, match="pickled objects"):
        ResumableTraining(path)
    assert not Executed.happened


def test_a_checkpoint_of_another_model_changes_no_weight(saved, tmp_path):
    path = tmp_path / "state.npz"
    last = f"variable_{len(saved) - 2}"
    for changed, message in (
        (saved | {last: np.zeros((7, 7))}, rf"'{last}' of shape \(7, 7\)"),
        (saved | {last: saved[last].astype(str)}, f"no numbers '{last}'"),
        ({k: v for k, v in saved.items() if k != last}, "no numbers"),
        (saved | {"variable_99": np.zeros(3)}, "no numbers 'best_0'"),
    ):
        written(path, changed)
        model = make_model()
        before = model.get_weights()
        with pytest.raises(ValueError, match=message) as raised:
            train(model, path)
        assert f"path={str(path)!r}" in str(raised.value)
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
    written(path, saved)
    with pytest.raises(ValueError, match=r"of shape \(3, 2\) instead of"):
        train(make_model(3), path)
    model = make_model()
    assert train(model, path, epochs=1).epochs_done == 1
    np.testing.assert_array_equal(model.get_weights()[0], saved["variable_0"])


def test_settings_and_histories_that_are_damaged(tmp_path):
    path = tmp_path / "settings.json"
    for content in ("", "[]", '{"a": 1', "[" * 99_999):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"settings\.json"):
            claim_folder(tmp_path, {"a": 1})
    path.write_text(json.dumps({"x" * 99_999: 1} | dict.fromkeys("abc", "y")))
    with pytest.raises(ValueError, match="a was 'y' and now is 1") as raised:
        claim_folder(tmp_path, {"a": 1})
    assert len(str(raised.value)) < 1000
    path = tmp_path / "history.csv"
    for content in (
        b"",
        b"epoch,loss\n1,0.5\n2\n",
        b"epoch,loss\n1,0.5,3\n",
        b"epoch,loss\n1,x\n",
        b"epoch,loss\n1,\xff\n",
        b'epoch,loss\n"1,2\n',
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"write_history.*history\.csv"):
            read_history(path)
