import shutil

import numpy as np
import pytest

from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from tests.models.llama.checkpoint_files import INDEX
from tests.models.llama.checkpoint_files import link
from tests.models.llama.checkpoint_files import make_cache
from tests.models.llama.checkpoint_files import make_shards
from tests.models.llama.checkpoint_files import save
from tests.models.llama.checkpoint_files import save_index


@pytest.mark.parametrize(
    "name",
    [
        "../two.safetensors",
        "sub/two.safetensors",
        "/etc/two.safetensors",
        "..\\two.safetensors",
        "C:two.safetensors",
        "./two.safetensors",
        "two.bin",
        "..",
        "",
        None,
        3,
    ],
)
def test_an_index_may_not_leave_its_folder(tmp_path, name):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    make_shards(folder)
    for place in (tmp_path, folder / "sub"):
        shutil.copy(folder / "two.safetensors", place)
    save_index(folder, a="one.safetensors", b="one.safetensors", c=name)
    with pytest.raises(ValueError, match="tensor 'c' .* without a folder"):
        CheckpointFolder(folder)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"d": "one.safetensors"}, "'d' in 'one.safetensors', but .* not in"),
        ({"b": "two.safetensors"}, "'b' in 'two.safetensors', but it is in"),
        ({"b": None}, "'b' in 'no file', but it is in 'one.safetensors'"),
        (
            {"c": "three.safetensors"},
            "'c' in 'three.safetensors', .* not there",
        ),
        ({"c": "\0.safetensors"}, "'c' .* not there"),
    ],
)
def test_an_index_has_to_fit_its_shards(tmp_path, weight_map, message):
    make_shards(tmp_path)
    one, two = "one.safetensors", "two.safetensors"
    changed = {"a": one, "b": one, "c": two} | weight_map
    save_index(tmp_path, **{k: v for k, v in changed.items() if v is not None})
    with pytest.raises(ValueError, match=message) as raised:
        CheckpointFolder(tmp_path)
    assert f"file={str(tmp_path / INDEX)!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "valid JSON"),
        ("[]", "JSON object"),
        ("{}", "weight_map=None"),
        ('{"weight_map": {}}', "weight_map={}"),
        ('{"weight_map": ["a"]}', r"weight_map=\['a'\]"),
        (
            '{"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}}',
            "'a' stands there twice",
        ),
    ],
)
def test_a_malformed_index_is_refused(tmp_path, text, message):
    make_shards(tmp_path)
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        CheckpointFolder(tmp_path)
    assert f"file={str(tmp_path / INDEX)!r}" in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "m.pth", "pytorch_model.bin.index.json"],
)
def test_pickle_files_are_refused_with_the_reason(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(ValueError, match="runs whatever code it holds") as e:
        CheckpointFolder(tmp_path)
    assert name in str(e.value)


def test_it_has_to_be_clear_which_files_are_meant(tmp_path):
    with pytest.raises(ValueError, match="holds no model.safetensors"):
        CheckpointFolder(tmp_path)
    with pytest.raises(ValueError, match="must be a folder that exists"):
        CheckpointFolder(tmp_path / "missing")
    save(tmp_path / "model-00001-of-00002.safetensors", a=[1])
    with pytest.raises(ValueError, match=f"need {INDEX}, which is missing"):
        CheckpointFolder(tmp_path)
    save(tmp_path / "other.safetensors", a=[2])
    with pytest.raises(ValueError, match=f"need {INDEX}, which is missing"):
        CheckpointFolder(tmp_path)
    save(tmp_path / "model.safetensors", a=[3])
    np.testing.assert_array_equal(CheckpointFolder(tmp_path).read("a"), [3])
    save_index(tmp_path, a="other.safetensors")
    with pytest.raises(ValueError, match="holds both"):
        CheckpointFolder(tmp_path)


def test_a_link_may_not_leave_the_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    save(tmp_path / "secret", a=[1])
    link(folder / "model.safetensors", "../secret")
    with pytest.raises(ValueError, match="a link out of its folder"):
        CheckpointFolder(folder)
    (folder / "model.safetensors").unlink()
    save(folder / "data", a=[2])
    link(folder / "model.safetensors", "data")
    link(tmp_path / "alias", "folder")
    for path in (folder, tmp_path / "alias"):
        np.testing.assert_array_equal(CheckpointFolder(path).read("a"), [2])


def test_an_index_may_not_be_a_link_out_of_the_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    make_shards(folder)
    shutil.move(folder / INDEX, tmp_path / INDEX)
    link(folder / INDEX, f"../{INDEX}")
    with pytest.raises(ValueError, match="a link out of its folder"):
        CheckpointFolder(folder)


def test_the_cache_of_the_hub_links_to_its_blobs(tmp_path):
    snapshot = make_cache(tmp_path / "hub")
    folder = CheckpointFolder(snapshot)
    np.testing.assert_array_equal(folder.read("a"), [1, 2])
    np.testing.assert_array_equal(folder.read("b"), [3])
    save(tmp_path / "secret", b=[3])
    (snapshot / "two.safetensors").unlink()
    link(snapshot / "two.safetensors", "../../../../secret")
    with pytest.raises(ValueError, match="a link out of its folder"):
        CheckpointFolder(snapshot)
