"""Tokenizer files that have holes or are made to harm."""

import json
import shutil

import pytest

from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer
from tests.models.llama.checkpoint_files import link
from tests.models.llama.tokenizer_folders import write_json

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def llama(pieces, tmp_path_factory):
    """A `tokenizer.json` that is read for its vocabulary and merges."""
    folder = tmp_path_factory.mktemp("llama")
    BFTLlamaTokenizer.from_folder(pieces).save_assets(str(folder))
    shutil.copy(pieces / "tokenizer_config.json", folder)
    return folder


def changed(source, folder, change, name="tokenizer.json"):
    """A copy of a folder with one JSON file changed."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    path = folder / name
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    change(content)
    write_json(path, content)
    return folder


def refused(folder, message):
    with pytest.raises(ValueError, match=message) as raised:
        BFTLlamaTokenizer.from_folder(folder)
    assert str(folder) in str(raised.value)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.update(vocab={"a": "b"}),
        lambda model: model.update(vocab={"a": -1}),
        lambda model: model.update(vocab={"a": 2**40}),
        lambda model: model.update(vocab=[]),
        lambda model: model["vocab"].update(zz=2**32 - 1),
        lambda model: model["vocab"].update(zz=model["vocab"]["a"]),
        lambda model: model["vocab"].pop("a"),
        lambda model: model.update(merges=3),
        lambda model: model.update(merges=[3]),
        lambda model: model.update(merges=["a b c"]),
        lambda model: model.update(merges=[["a"]]),
        lambda model: model["merges"].append(["zzzz", "qqqq"]),
        lambda model: model["merges"].append(["a", "zzzz"]),
    ],
)
def test_holes_in_vocabulary_and_merges(llama, byte_level, tmp_path, change):
    for source in (llama, byte_level):
        folder = tmp_path / source.name
        changed(source, folder, lambda content: change(content["model"]))
        refused(folder, r"tokenizer\.json")


def test_a_hole_is_found_at_once(byte_level, tmp_path):
    more = {f"zz{number}": 600 + number for number in range(30_000)}

    def change(content):
        content["model"]["vocab"].update(more, far=10**6)

    # A set of all ids for each id took minutes.
    refused(changed(byte_level, tmp_path / "x", change), "at 30600")


def test_many_special_tokens_are_added_at_once(pieces, tmp_path):
    tokens = [f"<{number}>" for number in range(5_000)]

    def change(config):
        config["additional_special_tokens"] = tokens

    folder = changed(pieces, tmp_path / "x", change, "tokenizer_config.json")
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    assert tokenizer(tokens[-1] + tokens[0]) == [5499, 500]
    assert tokenizer.special_tokens[-5_000:] == tokens


def test_padding_of_the_file_is_not_carried_out(byte_level, tmp_path):
    padding = {
        "strategy": {"Fixed": 10**12},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    folder = changed(
        byte_level,
        tmp_path / "x",
        lambda content: content.update(padding=padding),
    )
    plain = BFTLlamaTokenizer.from_folder(byte_level)
    assert BFTLlamaTokenizer.from_folder(folder)("a b") == plain("a b")


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Precompiled", "precompiled_charsmap": "/////w=="},
        {"type": "Precompiled", "precompiled_charsmap": "BAAAAGFiY2RlZmdo"},
    ],
)
def test_steps_that_panic(byte_level, tmp_path, normalizer, capfd):
    folder = changed(
        byte_level,
        tmp_path / "x",
        lambda content: content.update(normalizer=normalizer),
    )
    refused(folder, "`tokenizers` reads")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b'{"eos_token": "\\ud800"}', "surrogates"),
        ("tokenizer_config.json", b"[" * 99_999, "valid JSON"),
        ("tokenizer_config.json", b" " * 10_000_001, "at most 10000000 bytes"),
        (
            "tokenizer_config.json",
            b'{"added_tokens_decoder": {"' + b"9" * 5000 + b'": "x"}}',
            "added_tokens_decoder",
        ),
        ("special_tokens_map.json", b"[]", "JSON object"),
        ("added_tokens.json", b'{"x": true}', "`x` must be an id"),
        ("added_tokens.json", b'{"x": 1180591620717411303424}', "x"),
        ("generation_config.json", b'{"eos_token_id": "2"}', "eos_token_id"),
        ("config.json", b'{"eos_token_id": [[2]]}', "eos_token_id"),
    ],
)
def test_settings_that_are_damaged(pieces, tmp_path, name, content, message):
    folder = tmp_path / "x"
    shutil.copytree(pieces, folder)
    (folder / name).write_bytes(content)
    refused(folder, message)


def test_files_may_have_a_byte_order_mark(llama, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(llama, folder)
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    plain, marked = map(BFTLlamaTokenizer.from_folder, (llama, folder))
    assert marked("Ab 1é\n") == plain("Ab 1é\n")
    assert marked.special_tokens_map == plain.special_tokens_map
    assert marked.chat_template == plain.chat_template


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "tokenizer_config.json", "chat_template.jinja"]
)
def test_links_out_of_the_folder(pieces, tmp_path, name):
    folder = tmp_path / "x"
    shutil.copytree(pieces, folder)
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (folder / name).unlink(missing_ok=True)
    link(folder / name, "../secret")
    refused(folder, "a link out of its folder")


def piece(text, kind=1):
    """A piece of a SentencePiece model, as a field of the file."""
    body = b"\x0a" + varint(len(text)) + text + b"\x18" + bytes([kind])
    return b"\x0a" + varint(len(body)) + body


def varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


@pytest.mark.parametrize(
    ("pieces_added", "message"),
    [
        ([piece(b"a" * 100_000)], "at most 512 .* one of 100000"),
        (
            [piece(b"z%d" % i) for i in (*range(30_000), 29_999)],
            "'z29999' more",
        ),
        ([piece(b"\xff")], "UnicodeDecodeError"),
        ([b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"], "breaks off"),
    ],
)
def test_sentencepiece_models(pieces, tmp_path, pieces_added, message):
    folder = tmp_path / "x"
    shutil.copytree(pieces, folder)
    with open(folder / "tokenizer.model", "ab") as file:
        file.write(b"".join(pieces_added))
    refused(folder, message)
