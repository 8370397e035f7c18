"""What is saved comes back: presets, files, exports, LoRA and int8."""

import keras
import numpy as np
import pytest

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_changed
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.tokenizer_folders import write_byte_level

IDS = make_ids(B, T)


def assert_same(again, lm):
    np.testing.assert_array_equal(logits_of(again, IDS), logits_of(lm, IDS))
    assert [v.dtype for v in again.weights] == [v.dtype for v in lm.weights]
    for ours, theirs in zip(again.weights, lm.weights, strict=True):
        np.testing.assert_array_equal(numpy(ours.value), numpy(theirs.value))


def load_model(path):
    # Keras warns that it can't compile a model whose `compile` is its own.
    return keras.saving.load_model(path, compile=False)


def test_presets_keep_the_precision_weights(tmp_path):
    lm = make_changed()
    lm.save_to_preset(tmp_path / "preset")
    again = BFTLlamaCausalLM.from_preset(tmp_path / "preset")
    assert_same(again, lm)
    body = BFTLlamaBackbone.from_preset(str(tmp_path / "preset"))
    assert body.get_config() | {"name": ""} == (
        lm.backbone.get_config() | {"name": ""}
    )


def test_a_preset_keeps_its_tokenizer(tmp_path):
    folder = write_byte_level(tmp_path / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    lm = BFTLlamaCausalLM.from_preset(folder, sequence_length=20, strength=0.5)
    lm.save_to_preset(tmp_path / "preset")
    again = BFTLlamaCausalLM.from_preset(tmp_path / "preset")
    assert_same(again, lm)
    assert again.preprocessor.get_config() == lm.preprocessor.get_config()
    text = "the model reads 12 texts"
    want = lm.preprocessor.generate_preprocess(text)
    got = again.preprocessor.generate_preprocess(text)
    np.testing.assert_array_equal(
        numpy(got["token_ids"]), numpy(want["token_ids"])
    )


def test_keras_files(tmp_path):
    lm = make_changed()
    lm.save(tmp_path / "model.keras")
    assert_same(
        keras.saving.load_model(tmp_path / "model.keras", compile=False), lm
    )
    lm.save_weights(tmp_path / "model.weights.h5")
    again = make_lm()
    again.load_weights(tmp_path / "model.weights.h5")
    assert_same(again, lm)


# Keras says so of each layer that has nothing to quantize.
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_int8_comes_back(dtype, tmp_path):
    lm = make_changed(dtype=dtype)
    before = logits_of(lm, IDS)
    lm.quantize("int8")
    error = np.sqrt(np.mean(np.square(logits_of(lm, IDS) - before)))
    assert 0 < error < 0.1 * before.std()
    kinds = {v.path: v.dtype for v in lm.backbone.weights}
    assert kinds["decoder_layer_1/feed_forward/up/kernel"] == "int8"
    assert kinds["prior/hidden/kernel"] == dtype
    assert kinds["prior/log_precision/kernel"] == "float32"
    lm.save_to_preset(tmp_path / "preset")
    again = BFTLlamaCausalLM.from_preset(tmp_path / "preset")
    assert_same(again, lm)
    assert again.backbone.final_norm.compute_dtype == dtype
    # As often as one likes.
    again.save(tmp_path / "model.keras")
    assert_same(
        keras.saving.load_model(tmp_path / "model.keras", compile=False), lm
    )
