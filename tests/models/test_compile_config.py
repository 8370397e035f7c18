"""A compiled model is saved for every backend, those not installed here too."""

import json
import sys
import zipfile

import keras
import pytest

from keras_bft.models._compile_config import portable
from tests.compatibility.saved_models import LENGTH
from tests.compatibility.saved_models import MODELS
from tests.compatibility.saved_models import SAVED

OF_TORCH = "keras.src.backend.torch.optimizers"
ADAM = {
    "module": f"{OF_TORCH}.torch_adam",
    "class_name": "Adam",
    "config": {"name": "adam", "learning_rate": 0.25},
    "registered_name": "Adam",
}


@pytest.fixture
def no_torch_optimizers(monkeypatch):
    """Keras as it is where PyTorch is not installed."""
    if keras.backend.backend() == "torch":
        pytest.skip("they are there with PyTorch")
    for name in ("", ".torch_adam", ".torch_parallel_optimizer"):
        monkeypatch.setitem(sys.modules, OF_TORCH + name, None)


def test_wrapped_and_listed_optimizers_get_their_public_names():
    config = {"optimizer": {"config": {"inner": [ADAM, 3]}}, "loss": "x"}
    found = portable(config)
    [adam, three] = found["optimizer"]["config"]["inner"]
    assert (adam["module"], adam["registered_name"]) == (
        "keras.optimizers",
        None,
    )
    assert adam["config"] == ADAM["config"] and three == 3
    assert found["loss"] == "x" and portable(None) is None
    assert ADAM["module"].startswith(OF_TORCH)
    optimizer = keras.saving.deserialize_keras_object(adam)
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert float(optimizer.learning_rate) == 0.25


@pytest.mark.parametrize("name", ["sasrec", "llama"])
def test_no_backend_is_written_down(name, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    model = MODELS[name]()
    model.build((None, LENGTH))
    options = {}
    if name == "llama":
        options["sampler"] = keras_hub.samplers.TopPSampler(p=0.25, seed=3)
    model.compile(keras.optimizers.AdamW(0.125), **options)
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        text = archive.read("config.json").decode()
    assert "keras.src.backend" not in text
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.AdamW)
    assert float(loaded.optimizer.learning_rate) == 0.125
    # What "auto" comes to is each backend's to say.
    assert loaded.get_compile_config()["jit_compile"] == "auto"
    if name == "llama":
        assert loaded.sampler.get_config() == model.sampler.get_config()
        assert loaded.sampler.p == 0.25


def test_a_decoder_without_an_optimizer_is_saved(tmp_path):
    pytest.importorskip("keras_hub")
    model = MODELS["llama"]()
    model.compile(optimizer=None, sampler="greedy")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer is None
    assert type(loaded.sampler) is type(model.sampler)


# Its optimizer has no weights, which later versions note.
@pytest.mark.filterwarnings("ignore:Skipping variable loading")
def test_what_torch_wrote_before_loads_without_it(no_torch_optimizers):
    pytest.importorskip("keras_hub")
    path = SAVED / "0.1.0-torch" / "llama.keras"
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    assert OF_TORCH in json.dumps(config["compile_config"])
    assert isinstance(
        keras.saving.load_model(path).optimizer, keras.optimizers.Adam
    )
