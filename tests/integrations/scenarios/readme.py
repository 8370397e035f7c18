"""The example of the README."""

import os
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.integrations.scenarios.checks import FOLDER

README = Path(__file__).parents[3] / "README.md"


def check_the_readme_trains_and_saves_an_index():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "Keras3Layer" in block]
    rng = np.random.default_rng(0)
    histories = rng.integers(1, 1001, size=(32, 20)).astype("int32")
    features = {"history": histories, "item": histories[:, -1]}
    batches = tf.data.Dataset.from_tensor_slices(features).batch(16)
    names = {"batches": batches, "histories": histories}
    # Another scenario has an index in the folder.
    folder = FOLDER / "readme"
    folder.mkdir()
    here = os.getcwd()
    os.chdir(folder)
    try:
        exec(code, names)
    finally:
        os.chdir(here)
    assert names["items"].shape == (32, 10)
    served = tf.saved_model.load(str(folder / "index"))
    np.testing.assert_array_equal(served(histories)[1], names["items"])
