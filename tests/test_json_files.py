import json

import pytest

from keras_bft._json_files import read_json

pytestmark = pytest.mark.any_backend


def test_an_object_comes_back(tmp_path):
    path = tmp_path / "x.json"
    content = {"a": [1, 2.5, None, True], "é": {"\U0001f600": "\r\n"}}
    for ascii_only in (True, False):
        text = json.dumps(content, ensure_ascii=ascii_only, indent=1)
        path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        assert read_json(path) == content
    assert read_json(path, max_bytes=path.stat().st_size) == content
    with pytest.raises(ValueError, match="at most 9 bytes.*x.json"):
        read_json(path, max_bytes=9)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "valid JSON"),
        (b"\xff{}", "valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "valid JSON"),
        (b"{}\0", "valid JSON"),
        (b"[" * 99999, "valid JSON"),
        (b'{"a": ' + b"9" * 9999 + b"}", "valid JSON"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"\\uDC00": 1}', "surrogates not allowed"),
        (b"[]", "JSON object, not list"),
        (b"null", "JSON object, not NoneType"),
        (b'{"b": {"a": 1, "a": 2}}', "'a' stands there twice"),
    ],
)
def test_anything_else_is_refused(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_json(path)
    assert f"file={str(path)!r}" in str(raised.value)


def test_many_keys_and_one_of_them_twice_take_no_time(tmp_path):
    # As long as all pairs of keys would take hours.
    path = tmp_path / "x.json"
    keys = ", ".join(f'"{key}": 0' for key in range(100_000))
    path.write_text(f'{{{keys}, "99999": 0}}')
    with pytest.raises(ValueError, match="'99999' stands there twice"):
        read_json(path)
