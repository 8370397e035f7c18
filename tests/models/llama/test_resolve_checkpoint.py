import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bft.models.llama.checkpoint_folder import resolve_checkpoint
from tests.models.llama.checkpoint_files import make_cache

pytestmark = pytest.mark.any_backend


def test_a_local_folder_is_resolved_to_itself(tmp_path):
    assert resolve_checkpoint(tmp_path) == tmp_path
    assert resolve_checkpoint(str(tmp_path)) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be a folder, not a file"):
        resolve_checkpoint(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="preset='some/model'"):
        resolve_checkpoint("some/model")


@pytest.mark.parametrize(
    "preset",
    ["hf://model", "hf://a/b/c", "hf://a/b@", "kaggle://a/b", "hf://a/b c"],
)
def test_a_malformed_preset_is_refused(preset):
    with pytest.raises(ValueError, match="hf://organization/name"):
        resolve_checkpoint(preset)


def test_only_what_is_read_is_downloaded(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub.utils import filter_repo_objects

    calls = []

    def download(name, **options):
        calls.append((name, options))
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert resolve_checkpoint("hf://some/mo-del_1.5") == tmp_path
    assert resolve_checkpoint("hf://some/model@refs/pr/1") == tmp_path
    assert [(name, options.pop("revision")) for name, options in calls] == [
        ("some/mo-del_1.5", None),
        ("some/model", "refs/pr/1"),
    ]
    wanted = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.model",
        "chat_template.jinja",
        "merges.txt",
    ]
    unwanted = [
        "pytorch_model.bin",
        "model.pt",
        "consolidated.safetensors",
        "original/params.json",
        "README.md",
        "script.py",
    ]
    assert wanted == list(filter_repo_objects(wanted + unwanted, **calls[0][1]))


def test_hub_errors_say_what_to_check(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def offline(name, **options):
        raise hub.errors.LocalEntryNotFoundError("no snapshot")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(OSError, match="preset='hf://a/b' .no snapshot."):
        resolve_checkpoint("hf://a/b")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="no valid repository"):
        resolve_checkpoint("hf://a--b/c")


def test_the_cache_is_used_offline(tmp_path):
    pytest.importorskip("huggingface_hub")
    snapshot = make_cache(tmp_path / "hub")
    code = (
        "from keras_bft.models.llama.checkpoint_folder import *\n"
        "path = resolve_checkpoint('hf://some/model')\n"
        "print(path, CheckpointFolder(path).read('b'))\n"
        "try:\n"
        "    resolve_checkpoint('hf://some/other')\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()[:2]
    assert first == f"{snapshot} [3.]"
    assert "can neither be downloaded nor is it in the local cache" in second
    assert "hf://some/other" in second


def test_a_missing_hub_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"keras-bft\[llm\]"):
        resolve_checkpoint("hf://a/b")
