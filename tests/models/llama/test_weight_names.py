import numpy as np
import pytest

from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.checkpoint_writer import TensorSource
from keras_bft.models.llama.checkpoint_writer import write_checkpoint
from keras_bft.models.llama.weight_names import WeightName
from keras_bft.models.llama.weight_names import check_names
from keras_bft.models.llama.weight_names import weight_table


def make(folder, shapes):
    write_checkpoint(
        folder,
        [
            TensorSource(
                name, shape, "float32", lambda s=shape: np.zeros(s, "float32")
            )
            for name, shape in shapes.items()
        ],
    )
    return CheckpointFolder(folder)


def shapes_of(table):
    """Shapes that differ, so that no check passes by accident."""
    return {entry.hf: (2, 3 + i) for i, entry in enumerate(table)}


def test_the_names_of_one_layer():
    layer, ours = "model.layers.0", "decoder_layer_0"
    assert weight_table(1, tie_word_embeddings=False, use_bias=True) == [
        WeightName(*names)
        for names in (
            ("model.embed_tokens.weight", "token_embedding/embeddings", False),
            (
                f"{layer}.input_layernorm.weight",
                f"{ours}/attention/norm/gamma",
                False,
            ),
            (
                f"{layer}.self_attn.q_proj.weight",
                f"{ours}/attention/query/kernel",
                True,
            ),
            (
                f"{layer}.self_attn.q_proj.bias",
                f"{ours}/attention/query/bias",
                False,
            ),
            (
                f"{layer}.self_attn.k_proj.weight",
                f"{ours}/attention/key/kernel",
                True,
            ),
            (
                f"{layer}.self_attn.k_proj.bias",
                f"{ours}/attention/key/bias",
                False,
            ),
            (
                f"{layer}.self_attn.v_proj.weight",
                f"{ours}/attention/value/kernel",
                True,
            ),
            (
                f"{layer}.self_attn.v_proj.bias",
                f"{ours}/attention/value/bias",
                False,
            ),
            (
                f"{layer}.self_attn.o_proj.weight",
                f"{ours}/attention/output/kernel",
                True,
            ),
            (
                f"{layer}.self_attn.o_proj.bias",
                f"{ours}/attention/output/bias",
                False,
            ),
            (
                f"{layer}.post_attention_layernorm.weight",
                f"{ours}/feed_forward/norm/gamma",
                False,
            ),
            (
                f"{layer}.mlp.gate_proj.weight",
                f"{ours}/feed_forward/input/kernel",
                True,
            ),
            (
                f"{layer}.mlp.up_proj.weight",
                f"{ours}/feed_forward/up/kernel",
                True,
            ),
            (
                f"{layer}.mlp.down_proj.weight",
                f"{ours}/feed_forward/output/kernel",
                True,
            ),
            ("model.norm.weight", "final_norm/gamma", False),
            ("lm_head.weight", "output_embedding/kernel", True),
        )
    ]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_the_names_are_those_of_transformers(tied, use_bias):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=8,
            hidden_size=4,
            intermediate_size=6,
            num_hidden_layers=3,
            num_attention_heads=2,
            tie_word_embeddings=tied,
            attention_bias=use_bias,
        )
    )
    table = weight_table(3, tied, use_bias)
    assert sorted(entry.hf for entry in table) == sorted(
        name for name, _ in model.named_parameters()
    )
    linear = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    assert {e.hf for e in table if e.transpose} == linear - (
        {"lm_head.weight"} if tied else set()
    )
    assert len({entry.ours for entry in table}) == len(table)


def test_a_checkpoint_of_the_model_is_accepted(tmp_path):
    table = weight_table(2, True, False)
    shapes = shapes_of(table)
    unused = {
        "lm_head.weight": (5, 5),
        "model.layers.1.self_attn.rotary_emb.inv_freq": (4,),
    }
    check_names(make(tmp_path, shapes | unused), table, shapes)


def test_the_head_is_needed_if_untied(tmp_path):
    table = weight_table(2, False, False)
    shapes = shapes_of(table)
    there = {k: v for k, v in shapes.items() if k != "lm_head.weight"}
    with pytest.raises(ValueError, match="1 missing: lm_head.weight. Received"):
        check_names(make(tmp_path, there), table, shapes)


def test_one_error_lists_all_problems(tmp_path):
    table = weight_table(2, False, False)
    shapes = shapes_of(table)
    there = dict(shapes)
    del there["model.norm.weight"]
    there["score.weight"] = (1, 1)
    there["model.embed_tokens.weight"] = (7, 7)
    there["lm_head.weight"] = there["lm_head.weight"][::-1]
    with pytest.raises(ValueError) as raised:
        check_names(make(tmp_path, there), table, shapes)
    last = 2 + len(table)
    assert (
        "1 missing: model.norm.weight. "
        "1 not of this model: score.weight. "
        "2 of another shape: "
        "model.embed_tokens.weight is (7, 7) and should be (2, 3); "
        f"lm_head.weight is ({last}, 2) and should be (2, {last}). "
        f"Received: folder={str(tmp_path)!r}"
    ) in str(raised.value)


def test_at_most_ten_of_each_are_listed(tmp_path):
    table = weight_table(30, True, False)
    shapes = shapes_of(table)
    there = dict(list(shapes.items())[:1]) | {
        f"more.{i:02}": (1,) for i in range(11)
    }
    with pytest.raises(ValueError) as raised:
        check_names(make(tmp_path, there), table, shapes)
    message = str(raised.value)
    assert f"{len(table) - 1} missing: {table[1].hf}; " in message
    assert f"{table[10].hf}; ..." in message and table[11].hf not in message
    assert "11 not of this model" in message
    assert "more.09; ..." in message and "more.10" not in message


def test_biases_that_the_model_lacks_are_not_dropped(tmp_path):
    shapes = shapes_of(weight_table(1, True, True))
    table = weight_table(1, True, False)
    wanted = {entry.hf: shapes[entry.hf] for entry in table}
    with pytest.raises(ValueError, match=r"4 not of this model: .*k_proj.bias"):
        check_names(make(tmp_path, shapes), table, wanted)


def test_shapes_have_to_be_given_for_every_name(tmp_path):
    table = weight_table(1, True, False)
    shapes = shapes_of(table)
    folder = make(tmp_path, shapes)
    del shapes["model.norm.weight"]
    with pytest.raises(ValueError, match=r"names: \['model.norm.weight'\]"):
        check_names(folder, table, shapes)


def test_there_is_at_least_one_layer():
    with pytest.raises(ValueError, match="num_layers=0"):
        weight_table(0, True, False)
