"""The decoder with gated attention."""

import keras
import numpy as np
import pytest

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import inputs_of
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_logits

IDS = make_ids(B, T)


def make_gated():
    return make_lm(bayesian=False, gated_attention=True)


def make_open():
    """With gates that differ from one."""
    lm = make_gated()
    rng = np.random.default_rng(0)
    for variable in lm.backbone.added_variables():
        variable.assign(rng.normal(0.0, 0.5, variable.shape))
    return lm


def test_a_checkpoint_is_what_it_was():
    lm = make_gated()
    np.testing.assert_allclose(
        logits_of(lm, IDS), transformers_logits("grouped", IDS), atol=1e-5
    )
    assert [v.path for v in lm.backbone.added_variables()] == [
        f"decoder_layer_{layer}/attention/gate/kernel" for layer in range(2)
    ]


def test_training_opens_and_closes_the_gates():
    lm = make_gated()
    before = [numpy(v.value) for v in lm.backbone.added_variables()]
    lm.compile(keras.optimizers.Adam(3e-3), weighted_metrics=[])
    losses = lm.fit(
        inputs_of(IDS[:, :-1]), IDS[:, 1:], epochs=6, shuffle=False, verbose=0
    ).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    for start, variable in zip(
        before, lm.backbone.added_variables(), strict=True
    ):
        assert not start.any() and (numpy(variable.value) != 0).all()


def test_the_cached_decoder_reads_the_gates():
    lm = make_open()
    want = logits_of(lm, IDS)
    assert np.abs(want - logits_of(make_gated(), IDS)).max() > 0.1
    backbone = lm.backbone
    start = keras.ops.zeros((B,), "int32")
    states, caches = backbone.encode_cached(
        IDS[:, :7], start, backbone.make_cache(B, T), 0
    )
    parts = [states]
    for index in range(7, T):
        states, caches = backbone.encode_cached(
            IDS[:, index : index + 1], start, caches, index
        )
        parts.append(states)
    states = keras.ops.concatenate(parts, axis=1)
    got = backbone.token_embedding(states, reverse=True)
    np.testing.assert_allclose(numpy(got), want, atol=1e-5)


def test_presets_and_lora_files_hold_the_gates(tmp_path):
    lm = make_open()
    want = logits_of(lm, IDS)
    lm.save_to_preset(str(tmp_path / "preset"))
    again = BFTLlamaCausalLM.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(logits_of(again, IDS), want)

    lm.backbone.enable_lora(2)
    gates = {v.path for v in lm.backbone.added_variables()}
    assert gates < {v.path for v in lm.backbone.trainable_variables}
    lm.backbone.save_lora_weights(tmp_path / "gates.lora.h5")
    tuned = make_gated()
    tuned.backbone.load_lora_weights(tmp_path / "gates.lora.h5")
    np.testing.assert_allclose(logits_of(tuned, IDS), want, atol=1e-6)


def test_what_has_no_gate_refuses_it(tmp_path):
    with pytest.raises(ValueError, match="gated_attention=True"):
        make_gated().export_to_transformers(tmp_path / "export")
    with pytest.raises(ValueError, match="`gated_attention` must be False"):
        BFTLlamaBackbone(10, 1, 2, 8, 8, gated_attention=True)
