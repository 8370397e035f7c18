"""Checkpoints whose configuration or files are made to harm."""

import json
import time

import h5py
import keras
import numpy as np
import pytest

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.conversion import load_weights_from
from keras_bft.models.llama.hf_config import read_llama_config
from tests.models.llama.checkpoint_files import entry
from tests.models.llama.checkpoint_files import link
from tests.models.llama.checkpoint_files import make_cache
from tests.models.llama.checkpoint_files import pack
from tests.models.llama.checkpoint_files import save

ARGUMENTS = {
    "vocabulary_size": 11,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 12,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Folder of a small Llama, without a tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint") / "llama"
    lm = BFTLlamaCausalLM(BFTLlamaBackbone(**ARGUMENTS, bayesian=False))
    lm.export_to_transformers(folder)
    return folder


def copied(checkpoint, folder, **config):
    """The checkpoint in another folder, with other sizes."""
    folder.mkdir(exist_ok=True)
    for path in checkpoint.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vocab_size": 2**31 - 1}, r"embed_tokens.* is \(11, 8\) and should"),
        ({"intermediate_size": 2**30}, r"gate_proj.* is \(12, 8\) and should"),
        ({"num_hidden_layers": 2**30}, "num_hidden_layers=1073741824 and 21"),
        ({"num_hidden_layers": 3}, "9 missing: model.layers.2.input_layernorm"),
        ({"num_hidden_layers": 1}, "9 not of this model"),
        ({"head_dim": 2**20}, r"q_proj.* is \(8, 8\) and should be \(2097152"),
        ({"attention_bias": True}, "8 missing: .*q_proj.bias"),
        ({"tie_word_embeddings": True}, None),
        (
            {"rope_scaling": {"type": "linear", "factor": 2, "x" * 9999: 1}},
            "is not known for RoPE",
        ),
        ({"vocab_size": 2**31}, r"`vocab_size` .* below 2\^31"),
        ({"vocab_size": 11.0}, "`vocab_size` .* vocab_size=11.0"),
        ({"rms_norm_eps": 10**400}, "`rms_norm_eps` must be a positive"),
        ({"rope_theta": 10**400}, "`rope_theta` must be positive"),
    ],
)
def test_no_model_is_built_that_the_files_do_not_hold(
    checkpoint, tmp_path, monkeypatch, config, message
):
    folder = copied(checkpoint, tmp_path / "x", **config)
    if message is None:
        # The head is left over, which is allowed.
        BFTLlamaCausalLM.from_preset(folder, preprocessor=None)
        return

    def built(*args, **kwargs):
        raise AssertionError("a model was built")

    monkeypatch.setattr(BFTLlamaBackbone, "__init__", built)
    with pytest.raises(ValueError, match=message) as raised:
        BFTLlamaCausalLM.from_preset(folder, preprocessor=None)
    assert str(folder) in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_a_checkpoint_of_another_shape_changes_no_weight(checkpoint, tmp_path):
    backbone = BFTLlamaBackbone(**ARGUMENTS | {"intermediate_dim": 14})
    before = backbone.get_weights()
    with pytest.raises(ValueError, match="gate_proj"):
        load_weights_from(backbone, CheckpointFolder(checkpoint))
    path = copied(checkpoint, tmp_path / "x") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="ends at byte"):
        load_weights_from(backbone, CheckpointFolder(path.parent))
    for old, new in zip(before, backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


def test_files_may_be_links_into_the_cache_of_the_hub_alone(tmp_path):
    snapshot = make_cache(tmp_path / "hub")
    config = {
        "model_type": "llama",
        "vocab_size": 11,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "intermediate_size": 12,
        "max_position_embeddings": 64,
    }
    blob = snapshot.parent.parent / "blobs" / "cfg"
    blob.write_text(json.dumps(config))
    link(snapshot / "config.json", "../../blobs/cfg")
    assert read_llama_config(snapshot)["vocabulary_size"] == 11
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(config))
    (snapshot / "config.json").unlink()
    link(snapshot / "config.json", str(secret))
    with pytest.raises(ValueError, match="a link out of its folder"):
        read_llama_config(snapshot)


def test_a_configuration_may_have_a_byte_order_mark(checkpoint, tmp_path):
    folder = copied(checkpoint, tmp_path / "x")
    path = folder / "config.json"
    text = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text)
    expected = read_llama_config(checkpoint)
    assert read_llama_config(folder) == expected
    path.write_bytes(b"[" * 10_000_001)
    with pytest.raises(ValueError, match="at most 10000000 bytes"):
        read_llama_config(folder)


@pytest.mark.any_backend
def test_headers_that_are_hard_to_read_take_no_time(tmp_path):
    path = tmp_path / "model.safetensors"
    value = json.dumps(entry())
    names = ", ".join(f'"{name}": {value}' for name in range(50_000))
    start = time.process_time()
    path.write_bytes(pack(f'{{{names}, "49999": {value}}}'.encode()))
    with pytest.raises(ValueError, match="'49999' stands there twice"):
        CheckpointFolder(tmp_path)
    path.write_bytes(pack(f"{{{names}}}".encode()))
    with pytest.raises(ValueError, match="neither overlap nor leave gaps"):
        CheckpointFolder(tmp_path)
    path.write_bytes(pack(b"\xef\xbb\xbf{}", b""))
    with pytest.raises(ValueError, match="byte order mark"):
        CheckpointFolder(tmp_path)
    # Comparing all names with all others took minutes.
    assert time.process_time() - start < 30
    # A file that says it has a header of 30 MB, which nobody writes.
    path.write_bytes((3 * 10**7).to_bytes(8, "little"))
    with open(path, "ab") as file:
        file.truncate(4 * 10**7)
    with pytest.raises(ValueError, match="at most 20000000 bytes"):
        CheckpointFolder(tmp_path)


def test_tensors_in_any_order_are_those_of_their_names(tmp_path):
    save(tmp_path / "model.safetensors", b=[3], a=[1, 2], c=[])
    folder = CheckpointFolder(tmp_path)
    assert folder.names == ["a", "b", "c"]
    np.testing.assert_array_equal(folder.read("a"), [1, 2])
    np.testing.assert_array_equal(folder.read("b"), [3])
    assert folder.read("c").shape == (0,)


def make_lora():
    backbone = BFTLlamaBackbone(**ARGUMENTS, strength=1.0)
    backbone.enable_lora(2)
    return backbone


def test_a_damaged_lora_file_leaves_the_model_as_it_was(tmp_path):
    backbone = make_lora()
    for layer in backbone.transformer_layers:
        layer.attention.query_dense.lora_kernel_b.assign_add(
            keras.ops.ones((2, 8))
        )
    backbone.save_lora_weights(tmp_path / "whole.lora.h5")
    whole = (tmp_path / "whole.lora.h5").read_bytes()
    other = make_lora()
    before = other.get_weights()
    name = next(v.path for v in other.added_variables())

    def cut_kernels(file):
        # Those of the layers before are read by then.
        del file["lora"][sorted(set(file["lora"]) - {"vars"})[-1]]

    def lie(file):
        # No byte on the disk, and a terabyte in memory.
        del file["filter"][name]
        file["filter"].create_dataset(name, (10**12,), "i1", chunks=(10**6,))

    damages = [
        (lambda file: file["filter"].attrs.pop("rank"), "KeyError"),
        (lambda file: file["filter"].attrs.pop("target_layer_names"), "KeyErr"),
        (cut_kernels, "KeyError"),
        (lie, "differs in"),
        (b"", "OSError"),
        (b"abc", "OSError"),
        (whole[: len(whole) // 2], "OSError"),
    ]
    for number, (damage, message) in enumerate(damages):
        path = tmp_path / f"{number}.lora.h5"
        path.write_bytes(damage if isinstance(damage, bytes) else whole)
        if not isinstance(damage, bytes):
            with h5py.File(path, "a") as file:
                damage(file)
        with pytest.raises(ValueError, match=message) as raised:
            other.load_lora_weights(path)
        assert f"filepath={str(path)!r}" in str(raised.value)
        for old, new in zip(before, other.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
    other.load_lora_weights(tmp_path / "whole.lora.h5")
    kernel = other.transformer_layers[1].attention.query_dense.lora_kernel_b
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(kernel.value), np.ones((2, 8))
    )
    with pytest.raises(FileNotFoundError):
        other.load_lora_weights(tmp_path / "none.lora.h5")
