import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.checkpoint_folder import resolve_checkpoint
from tests.models.llama.checkpoint_files import INDEX
from tests.models.llama.checkpoint_files import make_shards
from tests.models.llama.checkpoint_files import save
from tests.models.llama.checkpoint_files import save_index

DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("code", DTYPES)
def test_reads_what_safetensors_writes(tmp_path, code):
    numpy_files = pytest.importorskip("safetensors.numpy")
    random = np.random.default_rng(0)
    arrays = {
        name: random.normal(size=shape).astype(DTYPES[code])
        for name, shape in {
            "x.w": (3, 5),
            "a": (),
            "b": (2, 0),
            "c": (7,),
        }.items()
    }
    numpy_files.save_file(arrays, tmp_path / "model.safetensors")
    folder = CheckpointFolder(str(tmp_path))
    assert folder.names == ["a", "b", "c", "x.w"]
    for name, array in arrays.items():
        value = folder.read(name)
        assert folder.dtype(name) == value.dtype == array.dtype
        assert folder.shape(name) == value.shape == array.shape
        assert value.tobytes() == array.tobytes()
        assert value.flags.writeable and value.flags.owndata


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reads_what_torch_writes(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    torch_files = pytest.importorskip("safetensors.torch")
    tensor = torch.linspace(-3, 5, 12).reshape(3, 4).to(getattr(torch, dtype))
    torch_files.save_file({"w": tensor}, tmp_path / "weights.safetensors")
    value = CheckpointFolder(tmp_path).read("w")
    assert value.dtype.name == dtype
    np.testing.assert_array_equal(
        value.astype("float64"), tensor.double().numpy()
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", ["5KB", "1GB"])
def test_reads_what_transformers_writes(tmp_path, dtype, size):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, max_shard_size=size)
    shards = list(tmp_path.glob("*.safetensors"))
    assert (len(shards) > 2) == (size == "5KB")
    assert (tmp_path / INDEX).exists() == (size == "5KB")
    folder = CheckpointFolder(resolve_checkpoint(tmp_path))
    state = model.state_dict()
    assert folder.names == sorted(state)
    for name, tensor in state.items():
        value = folder.read(name)
        assert value.dtype.name == dtype
        np.testing.assert_array_equal(
            value.astype("float32"), tensor.float().numpy()
        )


def test_transformers_computes_the_same_after_a_round_trip(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from keras_bft.models.llama.checkpoint_writer import TensorSource
    from keras_bft.models.llama.checkpoint_writer import write_checkpoint
    from keras_bft.models.llama.hf_config import read_llama_config
    from keras_bft.models.llama.hf_config import write_llama_config

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-3,
        rope_parameters={
            "rope_type": "linear",
            "factor": 2.0,
            "rope_theta": 300.0,
        },
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "old")
    folder = CheckpointFolder(tmp_path / "old")
    write_checkpoint(
        tmp_path / "new",
        [
            TensorSource(
                name,
                folder.shape(name),
                "float32",
                lambda name=name: folder.read(name),
            )
            for name in folder.names
        ],
        max_shard_bytes=5000,
    )
    write_llama_config(
        tmp_path / "new", read_llama_config(tmp_path / "old"), "float32"
    )
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "new")
    ids = torch.arange(1, 13).reshape(2, 6)
    with torch.no_grad():
        expected, actual = model(ids).logits, again.eval()(ids).logits
    assert expected.std() > 0
    np.testing.assert_array_equal(actual.numpy(), expected.numpy())


def test_reads_shards_and_nothing_beside_them(tmp_path):
    make_shards(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    (tmp_path / "consolidated.safetensors").write_bytes(b"not in the index")
    folder = CheckpointFolder(tmp_path)
    assert folder.names == ["a", "b", "c"]
    for name, value in {"a": [1, 2], "b": [3], "c": [4, 5]}.items():
        np.testing.assert_array_equal(folder.read(name), value)


def test_an_index_may_name_the_single_file(tmp_path):
    save(tmp_path / "model.safetensors", a=[1, 2])
    save_index(tmp_path, a="model.safetensors")
    np.testing.assert_array_equal(CheckpointFolder(tmp_path).read("a"), [1, 2])


def test_an_unknown_name_is_refused(tmp_path):
    save(tmp_path / "model.safetensors", a=[1, 2])
    folder = CheckpointFolder(tmp_path)
    for method in (folder.read, folder.shape, folder.dtype):
        with pytest.raises(ValueError, match=r"name='x', .*\['a'\]"):
            method("x")


def test_a_file_cut_after_it_was_opened_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    save(path, a=[1, 2])
    folder = CheckpointFolder(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    message = "at least 3 bytes of the tensor 'a' are gone"
    with pytest.raises(ValueError, match=message):
        folder.read("a")
    with pytest.raises(ValueError, match=message):
        list(folder.blocks("a"))


@pytest.mark.parametrize(
    ("max_bytes", "counts"),
    [(1, [1] * 5), (24, [2, 2, 1]), (1000, [5])],
)
def test_reads_blocks_of_whole_rows(tmp_path, max_bytes, counts):
    array = np.arange(15, dtype="f4").reshape(5, 3)
    save(tmp_path / "model.safetensors", a=array, b=np.zeros((0, 3)))
    folder = CheckpointFolder(tmp_path)
    blocks = list(folder.blocks("a", max_bytes))
    assert [rows.stop - rows.start for rows, _ in blocks] == counts
    for rows, block in blocks:
        np.testing.assert_array_equal(block, array[rows])
    assert list(folder.blocks("b")) == []


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads Linux' /proc"
)
def test_reading_keeps_no_pages_resident(tmp_path):
    size = 8 * 2**20
    names = [f"t{i}" for i in range(10)]
    save(
        tmp_path / "model.safetensors",
        **{name: np.ones(size // 4, "f4") for name in names},
    )

    def resident():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    folder = CheckpointFolder(tmp_path)
    folder.read("t0")
    before, most = resident(), 0
    for name in names:
        array = folder.read(name)
        assert array.sum() == size // 4
        most = max(most, resident() - before)
        del array
    assert most < 3 * size
