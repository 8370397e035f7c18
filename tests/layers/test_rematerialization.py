"""Layers under `keras.RematScope`."""

import contextlib

import keras
import numpy as np
import pytest

from keras_bft.diagnostics import trace
from keras_bft.layers import BFTLayer
from tests.layers.layer_checks import numpy

B, T, D = 2, 6, 8


def trained(scope, rng):
    """Weights after three steps with dropout."""
    keras.utils.set_random_seed(0)
    inputs = [keras.Input((T, D)), keras.Input((T, D))]
    mask = keras.Input((T,), dtype="bool")
    state, log_precision = inputs
    with scope:
        for index in range(2):
            state, log_precision = BFTLayer(
                2,
                16,
                causal=True,
                form="full",
                dropout=0.3,
                attention_dropout=0.2,
                attention="blockwise",
                seed=index,
                name=f"layer_{index}",
            )(state, log_precision, padding_mask=mask)
    model = keras.Model([*inputs, mask], [state, log_precision])
    model.compile(keras.optimizers.SGD(0.1), ["mse", "mse"])
    *given, target = rng.normal(size=(3, 3 * B, T, D)).astype("float32")
    given.append(np.arange(T) < rng.integers(1, T + 1, (3 * B, 1)))
    model.fit(given, [target, target], batch_size=B, shuffle=False, verbose=0)
    return [numpy(variable.value) for variable in model.variables]


def test_a_trace_reads_it():
    inputs = [keras.Input((T, D)), keras.Input((T, D))]
    with keras.RematScope("list_of_layers", layer_names=["layer"]):
        outputs = BFTLayer(2, 16, name="layer")(*inputs)
    model = keras.Model(inputs, outputs)
    given = np.ones((B, T, D), "float32")
    traced = trace(model, [given, given])
    assert traced["layer/residual/gain"].shape[:2] == (B, T)
    assert "layer/attention/kriging_weights" in traced


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "list_of_layers", "layer_names": ["layer_0"]},
        {"mode": "activations"},
    ],
    ids=lambda options: options["mode"],
)
def test_it_trains_as_without(options, monkeypatch):
    calls = []
    remat = keras.remat

    def counted(function):
        calls.append(function)
        return remat(function)

    monkeypatch.setattr(keras, "remat", counted)
    with_scope = trained(keras.RematScope(**options), np.random.default_rng(0))
    assert bool(calls) == (options["mode"] != "activations")
    without = trained(contextlib.nullcontext(), np.random.default_rng(0))
    for ours, wanted in zip(with_scope, without, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=2e-6)
