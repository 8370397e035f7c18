"""Damage to valid files: to their bytes, their JSON and their arrays."""

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Mutation = Callable[[random.Random, bytes], bytes]

_VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 1.5, -0.0, 1e308, 2**31, 2**63, 2**70),
    *("", "a", "\0", "\ud800", "é\u202e", "a" * 1000, "1", "__class__"),
    *([], [[]], {}, {"a": 1}, [None], [0, 0], float("nan"), float("inf")),
]
_PARTS = [
    *(b"", b"\0", b"\xff", b"\n", b"\r\n", b'"', b",", b"\t", b" ", b"{", b"["),
    *(
        b"]",
        b"}",
        b":",
        b"\xef\xbb\xbf",
        b"nan",
        b"-1",
        b"1e999",
        b"_",
        b"0" * 9,
    ),
    *(
        b"9" * 20,
        b"9" * 5000,
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"PK\3\4",
    ),
]
_ARRAYS: list[Any] = [
    *(np.array(3), np.zeros(0), np.zeros((0, 2**20)), np.ones((2, 3))),
    *(np.array([np.nan, np.inf]), np.array(["a", "b"]), np.array(b"x")),
    *(np.array([2**64 - 1], "uint64"), np.array([-1, 0]), np.zeros(3, ">i4")),
    *(np.array([None, {}], object), np.zeros(3, "U0"), np.ones(3, complex)),
    *(np.zeros(2, [("a", "i4")]), np.array(["2020-01-01"], "M8[s]"), np.True_),
]


def mutate_bytes(generator: random.Random, content: bytes) -> bytes:
    """Cuts, repeats, overwrites and inserts."""
    data = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 5))):
        start, stop = sorted(generator.choices(range(len(data) + 1), k=2))
        stop = generator.choice((stop, min(stop, start + 4)))
        kind = generator.randrange(6)
        if kind == 0:
            del data[start:stop]
        elif kind == 1:
            data[start:start] = data[start:stop] * generator.choice((1, 2, 50))
        elif kind == 2:
            del data[start:]
        elif kind == 3:
            data[start : start + 1] = bytes([generator.randrange(256)])
        elif kind == 4:
            data[start:stop] = generator.choice(_PARTS)
        else:
            data[start:start] = generator.choice(_PARTS)
    return bytes(data)


def mutate_json(generator: random.Random, content: bytes) -> bytes:
    """Replaces, removes, doubles and renames what stands somewhere in it."""
    if generator.random() < 0.2:
        return mutate_bytes(generator, content)
    try:
        return dump(_damaged(generator, json.loads(content)))
    except (ValueError, OverflowError, RecursionError):
        return mutate_bytes(generator, content)


def dump(value: Any) -> bytes:
    """JSON as others write it, halves of characters escaped."""
    return json.dumps(value).encode()


def _damaged(generator: random.Random, value: Any) -> Any:
    root = [copy.deepcopy(value)]
    for _ in range(generator.choice((1, 1, 2, 4))):
        parent: Any = root
        key: Any = 0
        while isinstance(parent[key], dict | list) and parent[key]:
            if parent is not root and generator.random() < 0.25:
                break
            parent = parent[key]
            keys = list(parent) if isinstance(parent, dict) else len(parent)
            key = (
                generator.choice(keys)
                if isinstance(keys, list)
                else generator.randrange(keys)
            )
        kind = generator.randrange(5)
        if kind == 0 and parent is not root:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            name = generator.choice((key + "x", "", "0", "\ud800", "type"))
            parent[name] = parent.pop(key)
        elif kind == 2 and isinstance(parent, list):
            parent += [copy.deepcopy(parent[key])] * generator.choice((1, 99))
        elif kind == 3 and isinstance(parent[key], int | float):
            parent[key] = parent[key] * generator.choice((-1, 2, 1e9)) + 1
        else:
            parent[key] = copy.deepcopy(generator.choice(_VALUES))
    return root[0]


def mutate_npz(generator: random.Random, content: bytes) -> bytes:
    """Damages the archive, or one array, text or header in it."""
    if generator.random() < 0.3:
        return mutate_bytes(generator, content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        name = generator.choice(sorted(entries))
    except Exception:  # Whatever an earlier mutation has made of it.
        return mutate_bytes(generator, content)
    kind = generator.randrange(5)
    if kind == 0:
        del entries[name]
    elif kind == 1:
        entries[name] = mutate_bytes(generator, entries[name])
    elif kind == 2:
        entries[generator.choice(sorted(entries))] = entries[name]
    elif kind == 3 and name == "state.npy":
        entries[name] = _state(generator, entries[name])
    else:
        entries[name] = _array(generator.choice(_ARRAYS))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, entry in entries.items():
            archive.writestr(name, entry)
    return packed.getvalue()


def _state(generator: random.Random, entry: bytes) -> bytes:
    try:
        text = str(np.load(io.BytesIO(entry)))
        return _array(np.array(mutate_json(generator, text.encode()).decode()))
    except Exception:  # Whatever an earlier mutation has made of it.
        return mutate_bytes(generator, entry)


def _array(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def mutate_safetensors(generator: random.Random, content: bytes) -> bytes:
    """Damages the header alone, its length told rightly, or all of it."""
    length = int.from_bytes(content[:8], "little")
    if generator.random() < 0.3 or length > len(content):
        return mutate_bytes(generator, content)
    header = mutate_json(generator, content[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + content[8 + length :]
