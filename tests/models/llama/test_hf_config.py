import json

import pytest

from keras_bft.models.llama.hf_config import read_llama_config
from keras_bft.models.llama.hf_config import write_llama_config

SMALLEST = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
ARGUMENTS = {
    "vocabulary_size": 64,
    "num_layers": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 4,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "head_dim": None,
    "layer_norm_epsilon": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_bias": False,
    "max_position_embeddings": 128,
}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROPES = pytest.mark.parametrize(
    "rope", [None, LINEAR, LLAMA3], ids=["default", "linear", "llama3"]
)


def as_argument(rope):
    if rope is None:
        return None
    return {"type" if k == "rope_type" else k: v for k, v in rope.items()}


def read(folder, **changes):
    (folder / "config.json").write_text(json.dumps(SMALLEST | changes))
    return read_llama_config(folder)


def test_defaults_are_those_of_hugging_face(tmp_path):
    assert read(tmp_path) == ARGUMENTS


def test_the_older_style_is_read(tmp_path):
    arguments = read(
        tmp_path,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        rope_scaling={"type": "linear", "factor": 4.0},
        tie_word_embeddings=True,
        attention_bias=True,
    )
    assert arguments == ARGUMENTS | {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "layer_norm_epsilon": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
        "tie_word_embeddings": True,
        "use_bias": True,
    }


@ROPES
def test_both_styles_say_the_same(tmp_path, rope):
    older = read(tmp_path, rope_theta=5e5, rope_scaling=rope)
    newer = {"rope_type": "default"} | (rope or {}) | {"rope_theta": 5e5}
    assert read(tmp_path, rope_parameters=newer) == older
    assert older["rope_theta"] == 5e5
    assert older["rope_scaling"] == as_argument(rope)


@ROPES
def test_what_transformers_writes_is_read(tmp_path, rope):
    transformers = pytest.importorskip("transformers")
    rope = {"rope_type": "default"} | (rope or {}) | {"rope_theta": 12345.0}
    config = transformers.LlamaConfig(
        **{k: v for k, v in SMALLEST.items() if k != "model_type"},
        num_key_value_heads=2,
        rms_norm_eps=3e-5,
        tie_word_embeddings=True,
        attention_bias=True,
        rope_parameters=dict(rope),
    )
    config.save_pretrained(tmp_path)
    scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
    assert read_llama_config(tmp_path) == ARGUMENTS | {
        "num_key_value_heads": 2,
        "head_dim": 4,
        "layer_norm_epsilon": 3e-5,
        "rope_theta": 12345.0,
        "rope_scaling": as_argument(scaling)
        if scaling["rope_type"] != "default"
        else None,
        "tie_word_embeddings": True,
        "use_bias": True,
    }


@ROPES
@pytest.mark.parametrize("head_dim", [None, 8])
def test_transformers_reads_what_is_written(tmp_path, rope, head_dim):
    transformers = pytest.importorskip("transformers")
    arguments = ARGUMENTS | {
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "layer_norm_epsilon": 2e-5,
        "rope_theta": 54321.0,
        "rope_scaling": as_argument(rope),
        "tie_word_embeddings": True,
        "use_bias": True,
    }
    write_llama_config(tmp_path, arguments, "bfloat16", {"eos_token_id": 7})
    assert read_llama_config(tmp_path) == arguments
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(config) is transformers.LlamaConfig
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.vocab_size == 64
    assert config.num_hidden_layers == 2
    assert config.num_attention_heads == 4
    assert config.num_key_value_heads == 2
    assert config.hidden_size == 16
    assert config.intermediate_size == 24
    assert config.head_dim == (head_dim or 4)
    assert config.rms_norm_eps == 2e-5
    assert config.max_position_embeddings == 128
    assert config.tie_word_embeddings is True
    assert config.attention_bias is True
    assert config.eos_token_id == 7
    assert str(config.dtype).removeprefix("torch.") == "bfloat16"
    expected = {"rope_type": "default"} | (rope or {})
    assert config.rope_parameters == expected | {"rope_theta": 54321.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen2"}, "model_type='qwen2'"),
        ({"model_type": None}, "model_type=None"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"attention_bias": 1}, "attention_bias=1"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config={'bits'"),
        ({"vocab_size": None}, "vocab_size=None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"hidden_size": 16.0}, "hidden_size=16.0"),
        ({"hidden_size": 18}, "multiple of 4 heads.* hidden_size=18"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"hidden_size": 12}, "even size.* hidden_size=12"),
        ({"head_dim": 5}, "head_dim=5"),
        ({"rms_norm_eps": 0}, "rms_norm_eps=0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
        ({"rope_theta": -1.0}, "rope_theta=-1.0"),
        ({"rope_theta": float("inf")}, "rope_theta=inf"),
        ({"rope_scaling": "linear"}, "rope_scaling='linear'"),
        ({"rope_scaling": {"type": "dynamic"}}, "rope_type='dynamic'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type='yarn'"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'longrope'"),
        ({"rope_scaling": {"type": "linear"}}, "`factor` .* no such key"),
        ({"rope_scaling": LINEAR | {"factor": 0.5}}, "factor=0.5"),
        ({"rope_scaling": LINEAR | {"factor": "2"}}, "factor='2'"),
        ({"rope_scaling": LINEAR | {"type": "llama3"}}, "type='llama3'"),
        ({"rope_scaling": LINEAR | {"beta_fast": 32}}, "beta_fast=32"),
        ({"rope_parameters": {"full_attention": LINEAR}}, "full_attention="),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4}}, "low_freq_factor="),
        (
            {
                "rope_scaling": LLAMA3
                | {"original_max_position_embeddings": 64.5}
            },
            "original_max_position_embeddings=64.5",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor=0.5",
        ),
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            "contradict rope_parameters with rope_theta=500000.0",
        ),
        (
            {"rope_scaling": LINEAR, "rope_parameters": LLAMA3},
            "contradict rope_parameters=",
        ),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as raised:
        read(tmp_path, **changes)
    assert "config.json" in str(raised.value)


@pytest.mark.parametrize("key", sorted(set(SMALLEST)))
def test_a_missing_key_is_named(tmp_path, key):
    config = {k: v for k, v in SMALLEST.items() if k != key}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"`{key}` must .* no such key"):
        read_llama_config(tmp_path)


def test_a_mistral_needs_its_window_to_be_null(tmp_path):
    mistral = {"model_type": "mistral", "num_key_value_heads": 2}
    arguments = read(tmp_path, **mistral, sliding_window=None)
    assert arguments == ARGUMENTS | {"num_key_value_heads": 2}
    with pytest.raises(ValueError, match="sliding_window=4096"):
        read(tmp_path, **mistral, sliding_window=4096)
    with pytest.raises(ValueError, match="`sliding_window` .* no such key"):
        read(tmp_path, **mistral)
    with pytest.raises(ValueError, match="`num_key_value_heads` .* no such"):
        read(tmp_path, model_type="mistral", sliding_window=None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "JSON object, not list"),
        ("{", "valid JSON"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ("[" * 100000, "valid JSON"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_llama_config(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="must have a config.json"):
        read_llama_config(tmp_path)


def test_a_configuration_is_not_overwritten_unasked(tmp_path):
    path = write_llama_config(tmp_path / "new", ARGUMENTS, "float32")
    before = path.read_text()
    with pytest.raises(FileExistsError, match="already has a config.json"):
        write_llama_config(path.parent, ARGUMENTS, "float16")
    assert path.read_text() == before
    write_llama_config(path.parent, ARGUMENTS, "float16", overwrite=True)
    assert json.loads(path.read_text())["torch_dtype"] == "float16"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changes", "dtype", "extra", "message"),
    [
        ({}, "int8", None, "dtype='int8'"),
        ({}, "float32", {"vocab_size": 3}, r"extra with \['vocab_size'\]"),
        ({}, "float32", {"rope_parameters": {}}, "rope_parameters"),
        ({}, "float32", {"quantization_config": {}}, "quantization_config={}"),
        ({"dropout": 0.1}, "float32", None, "dropout"),
        ({"num_query_heads": 3}, "float32", None, "hidden_size=16"),
        ({"num_key_value_heads": None}, "float32", None, "heads': None"),
        ({"rope_scaling": {"type": "yarn"}}, "float32", None, "'yarn'"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "float32",
            None,
            "rope_scaling': {'rope_type'",
        ),
    ],
)
def test_what_would_not_come_back_is_not_written(
    tmp_path, changes, dtype, extra, message
):
    with pytest.raises(ValueError, match=message):
        write_llama_config(tmp_path, ARGUMENTS | changes, dtype, extra)
    assert list(tmp_path.iterdir()) == []


def test_every_argument_is_needed(tmp_path):
    short = {k: v for k, v in ARGUMENTS.items() if k != "rope_theta"}
    with pytest.raises(ValueError, match=r"\['rope_theta'\] missing"):
        write_llama_config(tmp_path, short, "float32")
