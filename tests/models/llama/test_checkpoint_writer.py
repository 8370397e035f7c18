import json
import os
import weakref

import ml_dtypes
import numpy as np
import pytest

from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.checkpoint_writer import TensorSource
from keras_bft.models.llama.checkpoint_writer import write_checkpoint

safetensors = pytest.importorskip("safetensors")
DTYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def source(name, array):
    return TensorSource(name, array.shape, array.dtype.name, lambda: array)


def numbers(*shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return values.astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_comes_back(tmp_path, dtype):
    arrays = {"b": numbers(3, 5, dtype=dtype), "a": numbers(dtype=dtype)}
    paths = write_checkpoint(
        tmp_path / "new" / "one", [source(*item) for item in arrays.items()]
    )
    assert [path.name for path in paths] == ["model.safetensors"]
    assert list(paths[0].parent.iterdir()) == paths
    folder = CheckpointFolder(paths[0].parent)
    assert folder.names == ["a", "b"]
    with safetensors.safe_open(paths[0], "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        for name, array in arrays.items():
            assert folder.dtype(name) == folder.read(name).dtype == array.dtype
            assert folder.shape(name) == array.shape
            np.testing.assert_array_equal(folder.read(name), array)
            np.testing.assert_array_equal(file.get_tensor(name), array)


def test_views_are_written_in_their_own_order(tmp_path):
    array = numbers(4, 6)
    views = {"turned": array.T, "strided": array[::2, ::-1]}
    write_checkpoint(tmp_path, [source(*item) for item in views.items()])
    folder = CheckpointFolder(tmp_path)
    for name, view in views.items():
        np.testing.assert_array_equal(folder.read(name), view)


def test_shards_keep_to_their_size_and_have_an_index(tmp_path):
    # 40, 40, 400 and 20 bytes: the third one is too large for any shard.
    arrays = {
        "a": numbers(10),
        "b": numbers(5, 2, seed=1),
        "large": numbers(100, seed=2),
        "d": numbers(5, seed=3),
    }
    paths = write_checkpoint(
        tmp_path,
        [source(*item) for item in arrays.items()],
        max_shard_bytes=80,
    )
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert [path.name for path in paths] == [
        *names,
        "model.safetensors.index.json",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert json.loads(paths[-1].read_text()) == {
        "metadata": {"total_size": 500},
        "weight_map": {
            "a": names[0],
            "b": names[0],
            "large": names[1],
            "d": names[2],
        },
    }
    folder = CheckpointFolder(tmp_path)
    assert folder.names == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(folder.read(name), array)


def test_one_shard_is_held_at_a_time(tmp_path):
    made, held = [], []

    def read():
        array = np.zeros(10, "float32")
        made.append(weakref.ref(array))
        held.append(sum(reference() is not None for reference in made))
        return array

    write_checkpoint(
        tmp_path,
        [TensorSource(f"t{i}", (10,), "float32", read) for i in range(12)],
        max_shard_bytes=80,
    )
    assert held == [1, 2] * 6


def test_a_checkpoint_is_not_overwritten_unasked(tmp_path):
    old, new = numbers(4), numbers(4, seed=1)
    write_checkpoint(tmp_path, [source("a", old)])
    with pytest.raises(FileExistsError, match="already holds a checkpoint"):
        write_checkpoint(tmp_path, [source("a", new)])
    np.testing.assert_array_equal(CheckpointFolder(tmp_path).read("a"), old)


@pytest.mark.parametrize("before", [16, 10**6])
@pytest.mark.parametrize("after", [16, 48, 10**6])
def test_overwriting_leaves_nothing_of_the_old_one(tmp_path, before, after):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "adapter.safetensors").write_text("another file")
    for seed, size in enumerate((before, after)):
        sources = [source(f"t{i}", numbers(4, seed=seed)) for i in range(9)]
        paths = write_checkpoint(
            tmp_path, sources, max_shard_bytes=size, overwrite=True
        )
    assert {path.name for path in tmp_path.iterdir()} == {
        *(path.name for path in paths),
        "config.json",
        "adapter.safetensors",
    }
    folder = CheckpointFolder(tmp_path)
    np.testing.assert_array_equal(folder.read("t8"), numbers(4, seed=1))


def test_a_checkpoint_can_be_rewritten_from_itself(tmp_path):
    array = numbers(4)
    write_checkpoint(tmp_path, [source("a", array)])
    folder = CheckpointFolder(tmp_path)
    write_checkpoint(
        tmp_path,
        [TensorSource("b", (4,), "float32", lambda: folder.read("a"))],
        overwrite=True,
    )
    np.testing.assert_array_equal(CheckpointFolder(tmp_path).read("b"), array)


def test_a_failure_changes_nothing(tmp_path):
    old = numbers(4)
    write_checkpoint(tmp_path, [source("a", old)])
    before = sorted(tmp_path.iterdir())

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(
            tmp_path,
            [source("a", old + 1), TensorSource("b", (1,), "float32", fail)],
            max_shard_bytes=16,
            overwrite=True,
        )
    assert sorted(tmp_path.iterdir()) == before
    np.testing.assert_array_equal(CheckpointFolder(tmp_path).read("a"), old)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_others_may_read_what_the_user_lets_them_read(tmp_path):
    (tmp_path / "other").touch()
    sources = [source(f"t{i}", numbers(4)) for i in range(2)]
    for path in write_checkpoint(tmp_path, sources, max_shard_bytes=16):
        assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ([], {}, "at least one tensor"),
        ([source("a", numbers(1))] * 2, {}, r"of their own.*\['a'\]"),
        ([source("__metadata__", numbers(1))], {}, "__metadata__"),
        ([source("a", np.zeros(2, "int8"))], {}, "'a' .* dtype='int8'"),
        (
            [TensorSource("a", (2,), "float32", lambda: numbers(2, 1))],
            {},
            r"'a' must have shape \(2,\).*shape=\(2, 1\), dtype=float32",
        ),
        (
            [TensorSource("a", (2,), "bfloat16", lambda: numbers(2))],
            {},
            "dtype bfloat16, as announced.*dtype=float32",
        ),
        ([source("a", numbers(1))], {"max_shard_bytes": 0}, "max_shard_bytes"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, sources, options, message):
    with pytest.raises(ValueError, match=message):
        write_checkpoint(tmp_path, sources, **options)
    assert list(tmp_path.iterdir()) == []
