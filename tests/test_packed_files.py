import gzip
import io
import pickle
import zipfile

import numpy as np
import pytest

from keras_bft import _packed_files
from keras_bft._packed_files import read_gzip
from keras_bft._packed_files import read_npz

pytestmark = pytest.mark.any_backend


class Executed:
    """A pickle that leaves a trace if it is loaded."""

    happened: list[int] = []

    def __reduce__(self):
        return self.happened.append, (1,)


def pack(method=zipfile.ZIP_STORED, **entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def saved(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def lying(shape, dtype="<i8", data=b"\0" * 24):
    """An array whose header says something else than its bytes."""
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    text = (repr(header) + "\n").encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data


SHORT = pack(a=saved(np.arange(3)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back(tmp_path, save):
    arrays = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.array("text"),
        "c": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "d": np.zeros((0, 4), "float32"),
    }
    save(tmp_path / "x.npz", **arrays)
    for source in (tmp_path / "x.npz", open(tmp_path / "x.npz", "rb")):
        found = read_npz(source)
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    source.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "BadZipFile"),
        (b"abc", "BadZipFile"),
        (pickle.dumps(Executed()), "BadZipFile"),
        (saved(np.arange(3)), "BadZipFile"),
        (SHORT[:-9], "BadZipFile"),
        (pack(a=b""), "ValueError"),
        (pack(a=b"\x93NUMPY\3\0" + b"\0" * 99), r"version \(3, 0\)"),
        # A directory that starts before the file does.
        (SHORT[:-6] + b"\xff\0\0\0" + SHORT[-2:], "Error|BadZipFile"),
        (pack(a=saved(np.array([Executed()], object))), "pickled objects"),
        (pack(a=lying((4,))), "'a.npy' has .* bytes, and .* shape"),
        (pack(a=lying((10**12,))), "'a.npy' has .* bytes, and 8000000000"),
        (pack(a=lying((2**70,))), "'a.npy' has .* bytes"),
        (pack(a=lying((-3,))), "'a.npy' has .* bytes"),
        (pack(a=lying((3,), "<U99999999")), "ValueError"),
        (pack(a=lying((3,), "|O")), "pickled objects"),
        # The sum over the bytes tells.
        (pack(a=saved(np.arange(9))).replace(b"\5\0", b"\6\0"), "BadZipFile"),
    ],
)
def test_what_is_no_npz_is_refused(tmp_path, content, message):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_npz(path)
    assert f"file={str(path)!r}" in str(raised.value)
    with pytest.raises(ValueError, match="file=a BytesIO"):
        read_npz(io.BytesIO(content))
    assert not Executed.happened
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_npz(path)


def test_bombs_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(_packed_files, "FREE_BYTES", 2**21)
    path = tmp_path / "x"
    zeros = np.zeros(2**19)
    path.write_bytes(pack(zipfile.ZIP_DEFLATED, a=saved(zeros)))
    with pytest.raises(ValueError, match="unpacks to 41.* than 200 times"):
        read_npz(path)
    # What takes as much room on the disk is none.
    path.write_bytes(pack(a=saved(zeros)))
    np.testing.assert_array_equal(read_npz(path)["a"], zeros)
    path.write_bytes(gzip.compress(b" " * 2**22))
    with pytest.raises(ValueError, match="unpacks to over 2097152 .*here='.*x"):
        read_gzip(path, "here")
    noise = np.random.default_rng(0).bytes(2**21 + 7)
    path.write_bytes(gzip.compress(noise))
    assert read_gzip(path, "here") == noise
