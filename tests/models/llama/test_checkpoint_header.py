import pytest

from keras_bft.models.llama import _safetensors_header
from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from tests.models.llama.checkpoint_files import entry
from tests.models.llama.checkpoint_files import make_shards
from tests.models.llama.checkpoint_files import pack
from tests.models.llama.checkpoint_files import save


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"\x01\0\0", "has 3 bytes"),
        ((9).to_bytes(8, "little") + b"{}      ", "a header of 9"),
        (b"\xff" * 8 + b"{}", "a header of 18446744073709551615"),
        (b"PK\x03\x04" + b"\0" * 60, "another format"),
        (pack(b"{", b""), "valid JSON"),
        (pack(b"\xff{}", b""), "valid JSON"),
        (pack(b"[" * 99999, b""), "valid JSON"),
        (pack(b'{"a": ' + b"9" * 9999 + b"}", b""), "valid JSON"),
        (pack([1], b""), "JSON object, not list"),
        (pack(b'{"a": 1, "a": 2}', b""), "'a' stands there twice"),
        (pack({"__metadata__": {"x": 1}}, b""), "__metadata__={'x': 1}"),
        (pack({"__metadata__": []}, b""), r"__metadata__=\[\]"),
        (pack({"a": 3}), "'a' must have `dtype`"),
        (pack({"a": {"dtype": "F32", "shape": [2]}}), "'a' must have `dtype`"),
        (pack({"a": entry() | {"more": 1}}), "'a' .* nothing else"),
        (pack({"a": entry(dtype="I64", shape=(1,))}), "'a' .*'I64'"),
        (pack({"a": entry(dtype=["F32"])}), "'a' must have one of the dtypes"),
        (pack({"a": entry(dtype="F8_E4M3", shape=(8,))}), "'a' .*F64, F32"),
        (pack({"a": entry(shape=2)}), "'a' must have a `shape`"),
        (pack({"a": entry(shape=(-1, -2))}), "'a' must have a `shape`"),
        (pack({"a": entry(shape=(2.0,))}), "'a' must have a `shape`"),
        (pack({"a": entry(shape=(True, 2))}), "'a' must have a `shape`"),
        (pack({"a": entry(shape=(1,) * 65)}), "'a' must have a `shape`"),
        (pack({"a": entry(shape=(2**62,))}), "'a' has a `shape` that no"),
        (
            pack({"a": entry(shape=(0, 2**40, 2**40), offsets=(0, 0))}, b""),
            "'a' has a `shape` that no",
        ),
        (pack({"a": entry(offsets=8)}), "'a' must have `data_offsets`"),
        (pack({"a": entry(offsets=(0, 4, 8))}), "'a' must have `data_offsets`"),
        (pack({"a": entry(offsets=(8, 0))}), "'a' must have `data_offsets`"),
        (pack({"a": entry(offsets=(-8, 0))}), "'a' must have `data_offsets`"),
        (pack({"a": entry(offsets=(0.0, 8.0))}), "'a' must have `data_offsets"),
        (pack({"a": entry(shape=(3,))}), "'a' needs 12 bytes .* span 8"),
        (pack({"a": entry(dtype="F16")}), "'a' needs 4 bytes .* span 8"),
        (pack({"a": entry()}, b"\0" * 7), "'a' ends at .* truncated"),
        (pack({"a": entry(offsets=(80, 88))}), "'a' ends at .* truncated"),
        (pack({"a": entry(offsets=(4, 12))}, b"\0" * 12), "'a' .* the header"),
        (
            pack({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12),
            "'b' starts .* 'a' ends .* overlap",
        ),
        (pack({"a": entry(), "b": entry()}), "'b' starts .* 'a' ends"),
        (
            pack({"a": entry(), "b": entry(offsets=(9, 17))}, b"\0" * 17),
            "'b' starts .* 'a' ends .* gaps",
        ),
        (pack({"a": entry()}, b"\0" * 10), "2 bytes after 'a'"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, content, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        CheckpointFolder(tmp_path)
    assert f"file={str(path)!r}" in str(raised.value)


def test_an_absurd_header_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_safetensors_header, "MAX_HEADER_BYTES", 20)
    save(tmp_path / "model.safetensors", a=[1, 2])
    with pytest.raises(ValueError, match="at most 20 bytes"):
        CheckpointFolder(tmp_path)


def test_a_broken_shard_is_found_before_any_is_read(tmp_path):
    make_shards(tmp_path)
    path = tmp_path / "two.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="'c' ends .*two.safetensors"):
        CheckpointFolder(tmp_path)
