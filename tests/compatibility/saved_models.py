r"""Models saved by each backend, to be loaded by all and by later versions.

    KERAS_BACKEND=jax python -m tests.compatibility.saved_models

writes `saved/<version>-<backend>/` with a `.keras` file and the outputs of
each model. The folders of a release are never written again: they are what its
users have.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_bft
from keras_bft import layers
from keras_bft import models

SAVED = Path(__file__).parent / "saved"
NUM_ITEMS, LENGTH, WIDTH = 9, 4, 8
SIZES = {"max_length": LENGTH, "embedding_dim": WIDTH, "num_layers": 1}
ITEMS = np.array([[0, 3, 9, 1], [2, 2, 5, 7]], "int32")
TIMES = np.array([[0, 5, 60, 3600], [1, 2, 9000, 10**6]], "int32")


def functional() -> keras.Model:
    """A Functional model of the layers that a researcher would combine."""
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(NUM_ITEMS + 1, WIDTH, mask_zero=True)(ids)
    log_precision = layers.PrecisionEmbedding(NUM_ITEMS + 1)(ids)
    x, log_precision = layers.BFTLayer(
        2, 16, causal=True, form="full", kriging_weights=True
    )(x, log_precision)
    innovation, observed = layers.BFTAttention(2)(x, log_precision)
    x, log_precision = layers.KalmanResidual()(
        x, log_precision, innovation, observed
    )
    x, log_precision = layers.PrecisionFeedForward(16, gated=True)(
        x, log_precision
    )
    return keras.Model(ids, [x, log_precision])


def llama() -> keras.Model:
    """A decoder without a tokenizer."""
    backbone = models.BFTLlamaBackbone(
        vocabulary_size=NUM_ITEMS + 1,
        num_layers=1,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=WIDTH,
        intermediate_dim=12,
        strength=1.0,
    )
    return models.BFTLlamaCausalLM(backbone)


MODELS: dict[str, Callable[[], keras.Model]] = {
    "sasrec": lambda: models.SASRec(NUM_ITEMS, **SIZES),
    "plain-sasrec": lambda: models.SASRec(NUM_ITEMS, bayesian=False, **SIZES),
    "bert4rec": lambda: models.BERT4Rec(NUM_ITEMS, **SIZES),
    "hstu": lambda: models.HSTU(NUM_ITEMS, **SIZES),
    "functional": functional,
    "llama": llama,
}


def inputs_of(name: str, model: keras.Model) -> Any:
    """What a model of that name reads."""
    if name == "llama":
        mask = np.array([[0, 1, 1, 1], [1, 1, 1, 1]], "int32")
        return {"token_ids": ITEMS, "padding_mask": mask}
    if getattr(model, "reads_timestamps", False):
        return ITEMS, TIMES
    return ITEMS


def outputs_of(name: str, model: keras.Model) -> list[np.ndarray]:
    """What a model of that name gives."""
    inputs = keras.tree.map_structure(
        keras.ops.convert_to_tensor, inputs_of(name, model)
    )
    return [
        keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(model(inputs))
    ]


def changed(name: str, model: keras.Model) -> keras.Model:
    """The model with weights that no initializer gives."""
    outputs_of(name, model)
    rng = np.random.default_rng(len(name))
    for weight in model.trainable_variables:
        noise = rng.normal(0.0, 0.2, weight.shape)
        weight.assign(keras.ops.convert_to_numpy(weight.value) + noise)
    return model


def main() -> None:
    """Writes the models of the version and backend in use."""
    version = f"{keras_bft.__version__}-{keras.backend.backend()}"
    folder = SAVED / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        keras.utils.set_random_seed(0)
        model = changed(name, make())
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", *outputs_of(name, model))


if __name__ == "__main__":
    main()
