"""What a training step leaves behind."""

import gc
import warnings

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTHSTULayer
from keras_bft.layers import BFTLayer

LAYERS = {
    "plain": lambda: BFTLayer(2, 16, causal=True, bayesian=False),
    "light": lambda: BFTLayer(2, 16, causal=True),
    "full": lambda: BFTLayer(2, 16, causal=True, form="full"),
    "blockwise": lambda: BFTLayer(
        2, 16, causal=True, form="full", attention="blockwise"
    ),
    "learned strength": lambda: BFTLayer(
        2, 16, causal=True, trainable_strength=True, strength=0.1
    ),
    "hstu": lambda: BFTHSTULayer(2, 16, form="full"),
}


def tensors():
    """Identities of all tensors that Python knows of."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        # To ask some objects of PyTorch for their class warns.
        warnings.simplefilter("ignore")
        return {id(x) for x in gc.get_objects() if isinstance(x, torch.Tensor)}


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="elsewhere the gradient is not held by its tensors",
)
@pytest.mark.parametrize("name", LAYERS)
def test_a_step_leaves_nothing_behind(name):
    layer = LAYERS[name]()
    rng = np.random.default_rng(0)
    state = keras.ops.convert_to_tensor(rng.normal(size=(2, 8, 8)), "float32")
    log_precision = keras.ops.zeros((2, 8, 1))
    layer(state, log_precision)

    def step():
        outputs = layer(state, log_precision, training=True)
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        sum(keras.ops.mean(keras.ops.square(x)) for x in outputs).backward()

    step()
    gc.collect()
    before = tensors()
    step()
    gc.collect()
    assert not tensors() - before
