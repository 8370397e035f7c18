"""Models that any backend or an earlier version saved are what they were."""

import keras
import numpy as np
import pytest

import keras_bft
from tests.compatibility.saved_models import MODELS
from tests.compatibility.saved_models import SAVED
from tests.compatibility.saved_models import outputs_of

FOLDERS = sorted(SAVED.iterdir())


def test_every_backend_has_saved_every_model():
    backends = {folder.name.rsplit("-", 1)[1] for folder in FOLDERS}
    assert backends == {"jax", "tensorflow", "torch"}


@pytest.mark.parametrize("name", MODELS)
def test_it_loads_and_gives_the_same(name):
    if name == "llama":
        pytest.importorskip("keras_hub")
        # Imported, so that Keras knows the class.
        assert keras_bft.models.BFTLlamaCausalLM
    loaded = 0
    for folder in FOLDERS:
        path = folder / f"{name}.keras"
        if not path.exists():
            # Of a version that did not have it.
            continue
        model = keras.saving.load_model(path, compile=False)
        with np.load(folder / f"{name}.npz") as file:
            wanted = [file[key] for key in file.files]
        outputs = outputs_of(name, model)
        for output, value in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(
                output, value, rtol=1e-5, atol=1e-5, err_msg=folder.name
            )
        loaded += 1
    assert loaded >= 3
