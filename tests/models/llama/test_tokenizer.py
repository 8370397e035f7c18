import json
import os
import shutil
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

from keras_bft.models.llama._sentencepiece_model import read_pieces
from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer
from tests.models.llama.tokenizer_folders import make_texts
from tests.models.llama.tokenizer_folders import train_sentencepiece
from tests.models.llama.tokenizer_folders import write_byte_level
from tests.models.llama.tokenizer_folders import write_json
from tests.models.llama.tokenizer_folders import write_sentencepiece
from tests.smollm2 import needs_smollm2
from tests.smollm2 import smollm2_file

DATA = os.environ.get("KERAS_BFT_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="KERAS_BFT_DATA is not set")


def check_against_transformers(folder, texts=None):
    """Compares ids and texts, and returns both tokenizers."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = BFTLlamaTokenizer.from_folder(folder)
    texts = texts or make_texts()
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    ids = ours.tokenize(texts)
    for text, row, expected_row in zip(texts, ids, expected, strict=True):
        assert row == expected_row, repr(text)
    assert sum(map(len, ids)) > 5 * len(texts)
    assert ours.detokenize(ids) == theirs.batch_decode(ids)
    assert ours.detokenize(ids, skip_special_tokens=True) == (
        theirs.batch_decode(ids, skip_special_tokens=True)
    )
    assert ours.vocabulary_size() == len(theirs)
    assert ours.start_token_id == theirs.bos_token_id
    assert ours.end_token_id == theirs.eos_token_id
    ends = [theirs.bos_token_id] * ours.add_start_token
    ends += [theirs.eos_token_id] * ours.add_end_token
    assert theirs("")["input_ids"] == ends
    return ours, theirs


def test_byte_level_ids_are_those_of_transformers(byte_level):
    tokenizer, _ = check_against_transformers(byte_level)
    texts = make_texts()
    assert tokenizer.detokenize(tokenizer(texts)) == texts
    assert (tokenizer.add_start_token, tokenizer.add_end_token) == (False,) * 2


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("add_prefix_space", [None, False])
def test_sentencepiece_ids_are_those_of_transformers(
    tmp_path, legacy, add_prefix_space
):
    folder = write_sentencepiece(
        tmp_path / "x", legacy=legacy, add_prefix_space=add_prefix_space
    )
    tokenizer, _ = check_against_transformers(folder)
    assert (tokenizer.add_start_token, tokenizer.add_end_token) == (True, False)


@pytest.mark.parametrize("legacy", [False, True])
def test_tokenizer_json_that_transformers_wrote(tmp_path, legacy):
    transformers = pytest.importorskip("transformers")
    folder = write_sentencepiece(tmp_path / "x", legacy=legacy)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    theirs.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved" / "tokenizer.model").exists()
    ours, _ = check_against_transformers(tmp_path / "saved")
    assert ours.add_start_token is True
    if not legacy:
        texts = make_texts()
        assert ours(texts) == BFTLlamaTokenizer.from_folder(folder)(texts)


def test_tokenizer_json_with_the_normalizer_of_transformers_4(tmp_path, pieces):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "old"
    transformers.AutoTokenizer.from_pretrained(pieces).save_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["pre_tokenizer"] = None
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    write_json(folder / "tokenizer.json", content)
    check_against_transformers(folder)
    # The class of transformers 5 that takes the file as it stands.
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    shutil.copytree(folder, tmp_path / "plain")
    write_json(tmp_path / "plain" / "tokenizer_config.json", config)
    plain, _ = check_against_transformers(tmp_path / "plain")
    as_written = BFTLlamaTokenizer.from_folder(folder, as_written=True)
    assert as_written(make_texts()) == plain(make_texts())
    new = BFTLlamaTokenizer.from_folder(folder)
    assert as_written(" a</s>b") != new(" a</s>b")


def test_added_tokens_and_settings_of_a_sentencepiece_folder(tmp_path):
    token = {"lstrip": False, "rstrip": False, "single_word": False}
    token |= {"normalized": False, "special": True}
    size = len(read_pieces_of(train_sentencepiece()))
    folder = write_sentencepiece(
        tmp_path / "x",
        add_eos_token=True,
        pad_token={"__type": "AddedToken", "content": "<pad>", **token},
        additional_special_tokens=["<|user|>"],
        added_tokens_decoder={
            "0": {"content": "<unk>", **token},
            "1": {"content": "<s>", **token},
            "2": {"content": "</s>", **token},
            str(size): {"content": "<|im_end|>", **token},
            str(size + 1): {"content": "<sep>", **token, "special": False},
        },
    )
    ours, theirs = check_against_transformers(
        folder, [*make_texts(300), "<pad> <|user|>hi<|user|> <pad>x"] * 2
    )
    assert ours.token_to_id("<sep>") == size + 1
    assert ours.pad_token_id == theirs.pad_token_id == size + 2
    assert ours.token_to_id("<|user|>") == size + 3
    assert size + 1 not in ours.special_token_ids
    assert sorted(theirs.all_special_ids) == [0, 1, 2, size + 2, size + 3]
    assert ours.special_token_ids == [0, 1, 2, size, size + 2, size + 3]
    assert (ours.add_start_token, ours.add_end_token) == (True, True)


def read_pieces_of(model):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def test_symbols_that_the_user_of_sentencepiece_defined(tmp_path):
    folder = write_sentencepiece(tmp_path / "x", symbols=("<sep>", "def"))
    check_against_transformers(folder)


def test_special_tokens_map_counts_without_added_tokens_decoder(tmp_path):
    folder = write_byte_level(tmp_path / "x", bos_token=None)
    special = {"bos_token": "<|new|>", "pad_token": {"content": "<|pad|>"}}
    write_json(folder / "special_tokens_map.json", special)
    ours, theirs = check_against_transformers(
        folder, [*make_texts(200), "a<|new|>b <|pad|>"]
    )
    assert ours.start_token_id == 600
    assert ours.pad_token_id == theirs.pad_token_id == 601


def test_added_tokens_file_of_old_folders(tmp_path):
    folder = write_byte_level(tmp_path / "x")
    write_json(folder / "added_tokens.json", {"<sep>": 600, "<two>": 601})
    ours, _ = check_against_transformers(folder)
    assert ours("<two>a<sep>")[::2] == [601, 600]


def test_pieces_are_those_that_sentencepiece_reads(pieces):
    model = (pieces / "tokenizer.model").read_bytes()
    read = read_pieces(pieces / "tokenizer.model")
    assert read.pieces == read_pieces_of(model)
    assert read.types[:4] == [2, 3, 3, 6]


def test_ids_as_written_out_by_hand(pieces):
    tokenizer = BFTLlamaTokenizer.from_folder(pieces)
    assert tokenizer("") == []
    assert tokenizer("</s>") == [2]
    byte = tokenizer.token_to_id("<0x00>")
    assert tokenizer("</s>\x00") == [2, byte]
    assert tokenizer("</s>\U0001f4a9") == [
        2,
        *(byte + b for b in "💩".encode()),
    ]
    assert tokenizer("</s>\U0001f4a9")[1] == byte + 0xF0
    assert tokenizer.detokenize(tokenizer("a 💩")) == "a 💩"


@pytest.mark.any_backend
@needs_data
@pytest.mark.parametrize("legacy", [False, True])
def test_real_llama_2_tokenizer(tmp_path, legacy):
    folder = write_sentencepiece(tmp_path / "x", legacy=legacy)
    source = Path(DATA, "llm", "llama2_tokenizer.model")
    (folder / "tokenizer.model").unlink()
    shutil.copy(source, folder / "tokenizer.model")
    ours, theirs = check_against_transformers(folder)
    assert ours.vocabulary_size() == 32000
    assert ours("hi there") == [7251, 727]
    theirs.save_pretrained(tmp_path / "saved")
    check_against_transformers(tmp_path / "saved")


@pytest.mark.any_backend
@needs_data
# The reader of GGUF files in transformers warns of NumPy's next version.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_real_smollm2_tokenizer(tmp_path):
    needs_smollm2()
    transformers = pytest.importorskip("transformers")
    gguf = smollm2_file()
    theirs = transformers.AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name
    )
    theirs.save_pretrained(tmp_path / "x")
    ours, _ = check_against_transformers(tmp_path / "x")
    assert ours.vocabulary_size() == 49152
    assert ours.id_to_token(ours.end_token_id) == "<|im_end|>"
    assert ours.detokenize(ours(make_texts())) == make_texts()
    messages = [{"role": "user", "content": "Hi <b>"}]
    assert ours.render_chat(messages, True) == theirs.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        np.array,
        lambda texts: np.array(texts, object),
        lambda texts: [text.encode() for text in texts],
        lambda texts: np.array([text.encode() for text in texts]),
    ],
)
def test_containers_of_texts(byte_level, convert):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    texts = ["hello", "日本 <|im_end|>"]
    rows = [tokenizer.tokenize(text) for text in texts]
    assert rows[1][-1] == tokenizer.end_token_id
    assert tokenizer(convert(texts)) == rows
    assert tokenizer(texts[0]) == rows[0]
    assert tokenizer(np.array(texts[0])) == rows[0]
    assert tokenizer([]) == []


def test_tensorflow_texts(byte_level):
    tensorflow = pytest.importorskip("tensorflow")
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    texts = ["hello", "日本"]
    assert tokenizer(tensorflow.constant(texts)) == tokenizer(texts)
    assert tokenizer(tensorflow.constant("日本")) == tokenizer("日本")
    assert tokenizer([tensorflow.constant("日本")]) == [tokenizer("日本")]


def test_containers_of_ids(byte_level):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    ids = tokenizer("the text")
    for row in (ids, tuple(ids), np.array(ids), keras.ops.array(ids)):
        assert tokenizer.detokenize(row) == "the text"
        assert tokenizer.detokenize([row, row]) == ["the text"] * 2
    assert tokenizer.detokenize([ids, [], ids[:1]])[:2] == ["the text", ""]
    assert tokenizer.detokenize(np.array([ids])) == ["the text"]
    assert tokenizer.detokenize(keras.ops.array([ids])) == ["the text"]
    assert tokenizer.detokenize([]) == ""
    assert tokenizer.detokenize(np.zeros((0, 3), int)) == []


@pytest.mark.parametrize(
    "ids, message",
    [
        ([0, 600], "from 0 to 599"),
        ([[-1]], "from 0 to 599"),
        ([0.5], "must be ids"),
        ([[[1]]], "must be ids"),
        (3, "must be ids"),
        ("a", "must be ids"),
    ],
)
def test_ids_that_are_none(byte_level, ids, message):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    with pytest.raises(ValueError, match=message):
        tokenizer.detokenize(ids)


@pytest.mark.parametrize(
    "text", [3, ["a", 3], [["a"]], None, np.array([["a"]]), "\ud800", b"\xff"]
)
def test_texts_that_are_none(byte_level, text):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    with pytest.raises(ValueError, match="`inputs` must"):
        tokenizer.tokenize(text)


def test_vocabulary(byte_level):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    vocabulary = tokenizer.get_vocabulary()
    assert tokenizer.vocabulary_size() == len(vocabulary) == 600
    assert vocabulary[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    for index in (0, 300, 599):
        assert tokenizer.id_to_token(index) == vocabulary[index]
        assert tokenizer.token_to_id(vocabulary[index]) == index
    for index in (-1, 600):
        with pytest.raises(ValueError, match=f"Received: id={index}"):
            tokenizer.id_to_token(index)
    with pytest.raises(ValueError, match="Received: token='none'"):
        tokenizer.token_to_id("none")


def test_special_tokens(byte_level):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    assert tokenizer.start_token_id == 1
    assert tokenizer.end_token_id == tokenizer.pad_token_id == 2
    assert tokenizer.end_token_ids == [2]
    assert tokenizer.special_token_ids == [0, 1, 2]
    assert tokenizer.special_tokens[2] == "<|im_end|>"


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"config.json": 0}, [2, 0]),
        ({"config.json": [0, 2]}, [2, 0]),
        ({"config.json": 1, "generation_config.json": [2, 0]}, [2, 0]),
        ({"config.json": 0, "generation_config.json": None}, [2, 0]),
    ],
)
def test_end_tokens_of_the_model(tmp_path, files, expected):
    folder = write_byte_level(tmp_path / "x")
    for name, value in files.items():
        write_json(folder / name, {"eos_token_id": value})
    assert BFTLlamaTokenizer.from_folder(folder).end_token_ids == expected


def test_end_token_from_the_model_alone(tmp_path):
    folder = write_byte_level(tmp_path / "x", eos_token=None)
    with pytest.raises(ValueError, match='must have an "eos_token"'):
        BFTLlamaTokenizer.from_folder(folder)
    named = {"eos_token": "<|endoftext|>"}
    tokenizer = BFTLlamaTokenizer.from_folder(folder, special_tokens=named)
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (1, 0)
    write_json(folder / "config.json", {"eos_token_id": 2})
    assert BFTLlamaTokenizer.from_folder(folder).end_token_id == 2


def test_split_special_tokens(tmp_path):
    folder = write_byte_level(tmp_path / "x", split_special_tokens=True)
    ours, _ = check_against_transformers(folder)
    assert 2 not in ours("<|im_end|>")
    assert ours.detokenize(ours("<|im_end|>")) == "<|im_end|>"


def test_round_trip_of_config_and_assets(byte_level, tmp_path):
    tokenizer = BFTLlamaTokenizer.from_folder(
        byte_level, split_special_tokens=True, end_tokens=["<|endoftext|>"]
    )
    config = json.loads(
        json.dumps(keras.saving.serialize_keras_object(tokenizer))
    )
    copy = keras.saving.deserialize_keras_object(config)
    with pytest.raises(ValueError, match="no vocabulary yet"):
        copy("a")
    tokenizer.save_assets(tmp_path)
    copy.load_assets(tmp_path)
    assert copy(make_texts()) == tokenizer(make_texts())
    assert copy.get_config() == tokenizer.get_config()
    assert copy.end_token_ids == [2, 0]
    assert copy.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("write", [write_byte_level, write_sentencepiece])
def test_export_to_transformers(tmp_path, write):
    folder = write(tmp_path / "x", add_eos_token=True, pad_token="<pad>")
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    (tmp_path / "export").mkdir()
    tokenizer.export_to_transformers(tmp_path / "export")
    copy, theirs = check_against_transformers(tmp_path / "export")
    assert copy(make_texts()) == tokenizer(make_texts())
    assert copy.add_end_token == tokenizer.add_end_token
    assert copy.pad_token_id == theirs.pad_token_id == tokenizer.pad_token_id
    assert copy.get_config()["special_tokens"] == tokenizer.special_tokens_map
    assert copy.chat_template == theirs.chat_template == tokenizer.chat_template


def test_round_trip_in_a_preset(pieces, tmp_path, monkeypatch):
    tokenizer = BFTLlamaTokenizer.from_folder(pieces)
    backbone = keras_hub.models.LlamaBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=8,
    )
    preset = str(tmp_path / "preset")
    backbone.save_to_preset(preset)
    tokenizer.save_to_preset(preset)
    monkeypatch.setattr(
        BFTLlamaTokenizer, "backbone_cls", keras_hub.models.LlamaBackbone
    )
    copy = BFTLlamaTokenizer.from_preset(preset)
    assert copy(make_texts()) == tokenizer(make_texts())
    assert copy.special_token_ids == tokenizer.special_token_ids
    assert copy.add_start_token is True


def test_round_trip_in_a_keras_file(byte_level, tmp_path):
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)

    @keras.saving.register_keras_serializable(package="test_tokenizer")
    class Holder(keras.Model):
        def __init__(self, tokenizer, **kwargs):
            super().__init__(**kwargs)
            self.tokenizer = tokenizer
            self.built = True

        def get_config(self):
            tokenizer = keras.saving.serialize_keras_object(self.tokenizer)
            return {**super().get_config(), "tokenizer": tokenizer}

        @classmethod
        def from_config(cls, config):
            tokenizer = config.pop("tokenizer")
            return cls(keras.saving.deserialize_keras_object(tokenizer))

    path = tmp_path / "model.keras"
    Holder(tokenizer).save(path)
    copy = keras.saving.load_model(path).tokenizer
    assert copy(make_texts()) == tokenizer(make_texts())


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "valid JSON"),
        ('{"model"', "valid JSON"),
        ("[]", "JSON object"),
        ("{}", "package `tokenizers` reads"),
        ('{"model": {"type": "BPE", "vocab": {"a": 0}}}', "`tokenizers` reads"),
    ],
)
def test_tokenizer_json_that_is_none(tmp_path, text, message):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        BFTLlamaTokenizer.from_folder(tmp_path)
    assert "tokenizer.json" in str(error.value)


def test_tokenizer_json_that_is_truncated_or_has_holes(byte_level, tmp_path):
    text = (byte_level / "tokenizer.json").read_text("utf-8")
    path = tmp_path / "tokenizer.json"
    for end in range(0, len(text), len(text) // 20):
        path.write_text(text[:end], "utf-8")
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            BFTLlamaTokenizer.from_folder(tmp_path)
    path.write_bytes(b"\xff\xfe" + text.encode())
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        BFTLlamaTokenizer.from_folder(tmp_path)
    content = json.loads(text)
    vocabulary = content["model"]["vocab"]
    unused = next(t for t in vocabulary if vocabulary[t] == 599)
    vocabulary[unused] = 700
    write_json(path, content)
    with pytest.raises(ValueError, match=r"none.* at 599.*tokenizer\.json"):
        BFTLlamaTokenizer.from_folder(tmp_path)
    vocabulary[unused] = 598
    write_json(path, content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        BFTLlamaTokenizer.from_folder(tmp_path)


def test_post_processor_without_its_tokens(pieces, tmp_path):
    tokenizer = BFTLlamaTokenizer.from_folder(pieces)
    tokenizer.save_assets(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    content["post_processor"]["special_tokens"] = {}
    write_json(path, content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        BFTLlamaTokenizer.from_folder(tmp_path)


def test_tokenizer_model_that_is_broken(pieces, tmp_path):
    data = (pieces / "tokenizer.model").read_bytes()
    path = tmp_path / "tokenizer.model"
    for end in (0, 1, 7, len(data) // 2, len(data) // 3):
        path.write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"tokenizer\.model"):
            BFTLlamaTokenizer.from_folder(tmp_path)
    generator = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(data[:3000])
        for place in generator.integers(0, len(broken), 3):
            broken[place] = generator.integers(256)
        path.write_bytes(bytes(broken))
        with pytest.raises(ValueError, match=r"tokenizer\.model"):
            BFTLlamaTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model_type": "unigram"}, "type BPE"),
        ({"byte_fallback": False}, "falls back to bytes"),
        ({"normalization_rule_name": "nmt_nfkc"}, "normalisation rule"),
    ],
)
def test_tokenizer_model_that_is_not_llamas(tmp_path, options, message):
    model = train_sentencepiece(**options)
    (tmp_path / "tokenizer.model").write_bytes(model)
    with pytest.raises(ValueError, match=message):
        BFTLlamaTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"eos_token": 3}, "eos_token"),
        ({"eos_token": {"content": 3}}, "eos_token"),
        ({"legacy": "no"}, "legacy"),
        ({"chat_template": 3}, "chat_template"),
        ({"chat_template": [{"name": "x"}]}, "chat_template"),
        ({"chat_template": [{"name": "x", "template": ""}]}, "default"),
        ({"tokenizer_class": 3}, "tokenizer_class"),
        ({"added_tokens_decoder": []}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": "a"}}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"7": "<new>"}}, "id 7"),
        ({"additional_special_tokens": "a"}, "additional_special_tokens"),
    ],
)
def test_settings_of_the_wrong_type(tmp_path, config, message):
    folder = write_byte_level(tmp_path / "x", **config)
    with pytest.raises(ValueError, match=message) as error:
        BFTLlamaTokenizer.from_folder(folder)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("value", ["2", [], [True], 1000, -1])
def test_end_tokens_that_are_none(tmp_path, value):
    folder = write_byte_level(tmp_path / "x")
    write_json(folder / "config.json", {"eos_token_id": value})
    with pytest.raises(ValueError, match="eos_token_id"):
        BFTLlamaTokenizer.from_folder(folder)


def test_files_that_are_missing(tmp_path, byte_level):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json or"):
        BFTLlamaTokenizer.from_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="`path`"):
        BFTLlamaTokenizer.from_folder(tmp_path / "none")
    tokenizer = BFTLlamaTokenizer.from_folder(byte_level)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        tokenizer.load_assets(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        tokenizer.load_assets(tmp_path)
    assert tokenizer("a")


def test_arguments_outside_their_domain(byte_level):
    text = (byte_level / "tokenizer.json").read_text("utf-8")
    with pytest.raises(ValueError, match='must have an "eos_token"'):
        BFTLlamaTokenizer(text)
    with pytest.raises(ValueError, match="may have others"):
        BFTLlamaTokenizer(text, {"eos_token": "<|im_end|>", "x": "y"})
    with pytest.raises(ValueError, match="without '<none>'"):
        BFTLlamaTokenizer(text, {"eos_token": "<none>"})
    with pytest.raises(ValueError, match='needs a "bos_token"'):
        BFTLlamaTokenizer(
            text, {"eos_token": "<|im_end|>"}, add_start_token=True
        )
