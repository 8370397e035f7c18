"""What TorchScript writes of a layer, as it is traced for OpenVINO."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from keras_bft.layers._attention import LONGEST_DENSE

D = 8

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="TorchScript is PyTorch's"
    ),
    # It is deprecated, and Keras' shapes are constants that it warns of.
    pytest.mark.filterwarnings("ignore"),
]


def written(layer, *inputs):
    import torch

    script = torch.jit.trace(layer, inputs)
    kinds = {node.kind() for node in script.inlined_graph.nodes()}
    assert "prim::PythonOp" not in kinds
    return script


def inputs(length):
    rng = np.random.default_rng(length)
    return [
        keras.ops.convert_to_tensor(rng.normal(size=(2, length, D)), "float32")
        for _ in range(2)
    ]


def check_equal(script, layer, state, log_precision):
    for result, wanted in zip(
        script(state, log_precision), layer(state, log_precision), strict=True
    ):
        np.testing.assert_allclose(
            result.detach().numpy(), wanted.detach().numpy(), atol=1e-5
        )


@pytest.mark.parametrize("form", ["light", "full"])
def test_no_gradient_is_written(form):
    layer = BFTLayer(2, 16, causal=True, form=form, attention="blockwise")
    given = inputs(5)
    layer(*given)
    check_equal(written(layer, *given), layer, *given)


def test_a_long_sequence_leaves_the_length_open():
    layer = BFTLayer(2, 16, causal=True)
    given = inputs(LONGEST_DENSE + 1)
    layer(*given)
    script = written(layer, *given)
    check_equal(script, layer, *given)
    check_equal(script, layer, *inputs(LONGEST_DENSE + 9))
