"""Checkpoints made by hand, whole or broken."""

import json

import numpy as np
import pytest

INDEX = "model.safetensors.index.json"


def entry(shape=(2,), offsets=(0, 8), dtype="F32"):
    return {
        "dtype": dtype,
        "shape": list(shape) if isinstance(shape, tuple) else shape,
        "data_offsets": list(offsets)
        if isinstance(offsets, tuple)
        else offsets,
    }


def pack(header, data=b"\0" * 8):
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return len(header).to_bytes(8, "little") + header + data


def save(path, **values):
    """Writes float32 vectors, in the order in which they are given."""
    header, data = {}, b""
    for name, value in values.items():
        array = np.array(value, "<f4")
        header[name] = entry(array.shape, (len(data), len(data) + array.nbytes))
        data += array.tobytes()
    path.write_bytes(pack(header, data))


def save_index(folder, **weight_map):
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def make_shards(folder):
    save(folder / "one.safetensors", a=[1, 2], b=[3])
    save(folder / "two.safetensors", c=[4, 5])
    save_index(
        folder, a="one.safetensors", b="one.safetensors", c="two.safetensors"
    )


def link(path, target):
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("this system lets the user make no links")


REVISION = "0123456789abcdef0123456789abcdef01234567"


def make_cache(cache):
    """Lays files out as huggingface_hub does, shared blobs included."""
    repository = cache / "models--some--model"
    snapshot = repository / "snapshots" / REVISION
    for folder in (repository / "blobs", repository / "refs", snapshot):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    (cache / "blobs" / "ab").mkdir(parents=True)
    save(cache / "blobs" / "ab" / "abc", a=[1, 2])
    save(repository / "blobs" / "def", b=[3])
    link(repository / "blobs" / "abc", "../../blobs/ab/abc")
    for name, blob in {"one": "abc", "two": "def"}.items():
        link(snapshot / f"{name}.safetensors", f"../../blobs/{blob}")
    save_index(snapshot, a="one.safetensors", b="two.safetensors")
    return snapshot
