"""The decoder on several devices gives what it gives on one."""

import json

import keras
import pytest

from keras_bft.models import BFTLlamaBackbone
from tests import eight_devices

CODE = """
import json
import keras
import numpy as np
from keras import distribution

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM

def losses(parallel=None, names=()):
    distribution.set_distribution(parallel)
    keras.utils.set_random_seed(0)
    backbone = BFTLlamaBackbone(
        vocabulary_size=32, num_layers=1, num_query_heads=4, hidden_dim=16,
        intermediate_dim=24, num_key_value_heads=2, use_bias=True,
        strength=1.0, trainable_strength=True)
    rng = np.random.default_rng(0)
    for weight in backbone.weights:
        if "strength" not in weight.path and "gamma" not in weight.path:
            weight.assign(
                np.asarray(weight) + rng.normal(0.0, 0.1, weight.shape))
    lm = BFTLlamaCausalLM(backbone)
    lm.compile(keras.optimizers.SGD(0.1), weighted_metrics=[])
    ids = rng.integers(0, 32, (8, 7))
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((8, 6), "int32")}
    history = lm.fit(x, ids[:, 1:], epochs=2, batch_size=8, shuffle=False,
                     verbose=0).history["loss"]
    found = {w.path: w.value.sharding for w in backbone.weights}
    return history, {
        name: [len(found[name].device_set),
               None if found[name].is_fully_replicated
               else list(found[name].spec)] for name in names}

devices = distribution.list_devices()
mesh = distribution.DeviceMesh((4, 2), ("batch", "model"), devices)
layouts = BFTLlamaBackbone.get_layout_map(mesh)
print(json.dumps([
    losses(),
    losses(distribution.DataParallel(devices=devices)),
    losses(
        distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch"),
        [
            "token_embedding/embeddings",
            "token_embedding/reverse_embeddings",
            "decoder_layer_0/attention/query/kernel",
            "decoder_layer_0/attention/key/bias",
            "decoder_layer_0/attention/output/kernel",
            "decoder_layer_0/feed_forward/up/kernel",
            "decoder_layer_0/feed_forward/output/kernel",
            "decoder_layer_0/feed_forward/log_process_noise",
            "decoder_layer_0/strength",
            "prior/hidden/kernel",
            "prior/log_precision/kernel",
            "final_norm/gamma",
        ],
    ),
]))
"""


@eight_devices.only_jax
def test_devices_together_give_the_loss_of_one():
    result = eight_devices.run(CODE)
    [one, _], [data, _], [model, layouts] = json.loads(
        result.stdout.splitlines()[-1]
    )
    assert one[-1] < one[0]
    assert data == pytest.approx(one, abs=1e-5)
    assert model == pytest.approx(one, abs=1e-5)
    rows, columns = ["model", None], [None, "model"]
    assert [spec for _, spec in layouts.values()] == [
        rows,
        columns,
        columns,
        ["model"],
        rows,
        columns,
        rows,
        *[None] * 5,
    ]
    assert {count for count, _ in layouts.values()} == {8}


def test_a_mesh_needs_its_axes():
    with pytest.raises(ValueError, match="Received: device_mesh='cpu'"):
        BFTLlamaBackbone.get_layout_map("cpu")
    mesh = keras.distribution.DeviceMesh((1, 1), ("data", "model"), ["cpu:0"])
    with pytest.raises(ValueError, match="no axis 'batch'"):
        BFTLlamaBackbone.get_layout_map(mesh)
    layouts = BFTLlamaBackbone.get_layout_map(
        mesh, data_parallel_dim_name="data"
    )
    layout = layouts["decoder_layer_11/attention/value/kernel"]
    assert tuple(layout.axes) == (None, "model")
    assert layouts["decoder_layer_0/feed_forward/log_process_noise"] is None
