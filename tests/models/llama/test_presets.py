"""What is saved comes back: presets, files, exports, LoRA and int8."""

import keras
import numpy as np
import pytest
import torch
import transformers

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import set_strength
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.small_models import transformers_logits
from tests.models.llama.tokenizer_folders import write_byte_level

IDS = make_ids(B, T)


def make_changed(**options):
    """A model with precision weights that no argument would give again."""
    lm = make_filter(**options)
    for index, layer in enumerate(lm.backbone.transformer_layers):
        layer.strength.assign(0.3 + 0.4 * index)
    return lm


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


@pytest.mark.parametrize("kind", ["grouped", "tied", "biases", "llama3"])
def test_transformers_reads_the_export(kind, tmp_path):
    lm = make_lm(kind)
    # As if it had been trained.
    kernel = lm.backbone.transformer_layers[0].attention.query_dense.kernel
    kernel.assign(numpy(kernel) * 1.1)
    lm.export_to_transformers(tmp_path / "export")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "export")
    with torch.no_grad():
        got = model(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(got, logits_of(lm, IDS), atol=1e-5)
    assert np.abs(got - transformers_logits(kind, IDS)).max() > 1e-3
    again = BFTLlamaCausalLM.from_preset(tmp_path / "export", preprocessor=None)
    np.testing.assert_array_equal(logits_of(again, IDS), logits_of(lm, IDS))


def test_the_tokenizer_is_exported(tmp_path):
    folder = write_byte_level(tmp_path / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    lm = BFTLlamaCausalLM.from_preset(folder, bayesian=False)
    lm.export_to_transformers(tmp_path / "export")
    for text in ("the model", "<|im_end|> 12  a"):
        want, got = (
            transformers.AutoTokenizer.from_pretrained(path)(text)["input_ids"]
            for path in (folder, tmp_path / "export")
        )
        assert got == want


def test_a_filter_is_not_exported(tmp_path):
    lm = make_changed()
    with pytest.raises(ValueError, match=r"Received: strengths \[0\.3"):
        lm.export_to_transformers(tmp_path / "export")
    assert not (tmp_path / "export").exists()
    set_strength(lm, 0.0)
    lm.export_to_transformers(tmp_path / "export")
    with pytest.raises(FileExistsError, match="already"):
        lm.export_to_transformers(tmp_path / "export")


def test_lora_comes_back(tmp_path):
    lm, plain = make_changed(), make_changed()
    before = logits_of(lm, IDS)
    lm.backbone.enable_lora(2)
    trainable = lm.backbone.trainable_variables
    assert {v.path.split("/", 1)[1] for v in trainable} == {
        f"attention/{name}/lora_kernel_{part}"
        for name in ("query", "value")
        for part in "ab"
    }
    np.testing.assert_array_equal(logits_of(lm, IDS), before)
    rng = np.random.default_rng(0)
    for variable in trainable:
        variable.assign(rng.normal(0.0, 0.3, variable.shape))
    path = str(tmp_path / "query_value.lora.h5")
    lm.backbone.save_lora_weights(path)
    plain.backbone.load_lora_weights(path)
    want = logits_of(lm, IDS)
    np.testing.assert_array_equal(logits_of(plain, IDS), want)
    assert np.abs(want - before).max() > 0.1
    # The filter reads what the projections multiply by.
    for name in ("query", "value"):
        dense = getattr(
            lm.backbone.transformer_layers[1].attention, f"{name}_dense"
        )
        merged = numpy(dense.kernel)
        dense.lora_kernel_b.assign(0.0 * dense.lora_kernel_b)
        dense._kernel.assign(merged)
    np.testing.assert_allclose(logits_of(lm, IDS), want, atol=1e-4)


def test_lora_takes_any_layer(tmp_path):
    lm = make_changed()
    lm.backbone.enable_lora(2, target_layer_names=["up", "output"])
    paths = {v.path.split("/")[-2] for v in lm.backbone.trainable_variables}
    assert paths == {"up", "output"}


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
