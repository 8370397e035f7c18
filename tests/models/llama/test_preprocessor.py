import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_bft.models.llama.preprocessor import BFTLlamaCausalLMPreprocessor
from keras_bft.models.llama.tokenizer import BFTLlamaTokenizer
from tests.models.llama.tokenizer_folders import make_texts
from tests.models.llama.tokenizer_folders import write_sentencepiece

TEXTS = ["the model reads a text", "日本", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_sentencepiece(
        tmp_path_factory.mktemp("a") / "x", pad_token="<unk>"
    )


@pytest.fixture(scope="module")
def tokenizer(folder):
    return BFTLlamaTokenizer.from_folder(folder)


def to_numpy(batch):
    x, y, weight = batch
    parts = (x["token_ids"], x["padding_mask"], y, weight)
    return [np.asarray(keras.ops.convert_to_numpy(part)) for part in parts]


def expected_rows(rows, length, pad, masked=None):
    """Builds the four outputs from whole rows, by their definition."""
    ids = np.array([(row + [pad] * (length + 1))[: length + 1] for row in rows])
    mask = np.array([np.arange(length + 1) < len(row) for row in rows])
    weight = mask.astype("float32")
    for index, count in enumerate(masked or []):
        weight[index, :count] = 0
    return ids[:, :-1], mask[:, :-1], ids[:, 1:], weight[:, 1:]


def check(batch, expected):
    batch = to_numpy(batch)
    kinds = [part.dtype.name for part in batch]
    assert kinds == ["int32", "bool", "int32", "float32"]
    for part, wanted in zip(batch, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_rows_for_training(folder, tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor.from_folder(folder, 24)
    rows = [[1, *tokenizer(text)] for text in TEXTS]
    assert [len(row) for row in rows][1:] == [1 + len(tokenizer("日本")), 1]
    assert tokenizer.pad_token_id == 0
    check(preprocessor(TEXTS), expected_rows(rows, 24, 0))
    one = to_numpy(preprocessor(TEXTS[0]))
    assert one[0].shape == (24,)
    np.testing.assert_array_equal(one[2], expected_rows(rows, 24, 0)[2][0])


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("end", [False, True])
def test_ends_and_truncation_are_those_of_keras_hub(tokenizer, start, end):
    preprocessor = BFTLlamaCausalLMPreprocessor(
        tokenizer, 8, add_start_token=start, add_end_token=end
    )
    packer = keras_hub.layers.StartEndPacker(
        9, 1, 2, pad_value=0, return_padding_mask=True
    )
    texts = TEXTS + make_texts(50)
    rows = [tokenizer(text) for text in texts]
    assert max(map(len, rows)) > 9
    ids, mask = packer(rows, add_start_value=start, add_end_value=end)
    ids = keras.ops.convert_to_numpy(ids)
    mask = keras.ops.convert_to_numpy(mask)
    expected = ids[:, :-1], mask[:, :-1], ids[:, 1:], mask[:, 1:]
    check(preprocessor(texts), expected)


@pytest.mark.parametrize("end", [False, True])
def test_prompts_have_no_weight(tokenizer, end):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 32, None, end)
    prompts, responses = ["the text says", "", "a"], [" what", "日本", ""]
    rows = [
        [1, *tokenizer(prompt), *tokenizer(response), *([2] if end else [])]
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    masked = [1 + len(tokenizer(prompt)) for prompt in prompts]
    batch = preprocessor({"prompts": prompts, "responses": responses})
    check(batch, expected_rows(rows, 32, 0, masked))
    weight = to_numpy(batch)[3]
    counts = [len(row) - count for row, count in zip(rows, masked, strict=True)]
    assert weight.sum(1).tolist() == counts
    one = preprocessor({"prompts": prompts[0], "responses": responses[0]})
    np.testing.assert_array_equal(to_numpy(one)[3], weight[0])


def test_prompts_alone_have_weight(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 16)
    check(preprocessor({"prompts": TEXTS}), to_numpy(preprocessor(TEXTS)))


def test_response_that_is_cut(tokenizer):
    prompt = "the model reads"
    size = len(tokenizer(prompt))
    texts = {"prompts": ["", prompt], "responses": ["a", "a text says"]}

    def make(length, **options):
        return BFTLlamaCausalLMPreprocessor(
            tokenizer, length, add_end_token=True, **options
        )

    # The start token, the prompt, one token of the response and the end.
    ids, mask, y, weight = to_numpy(make(size + 2)(texts))
    assert y[1, -1] == 2
    assert ids[1].tolist() == [
        1,
        *tokenizer(prompt),
        tokenizer(texts["responses"][1])[0],
    ]
    assert weight[1].tolist() == [0] * size + [1, 1]
    message = "Prompt 1 leaves no room .* a prompt of "
    with pytest.raises(ValueError, match=message + str(size)):
        make(size + 1)(texts)
    ids, mask, y, weight = to_numpy(make(size + 1, truncate=True)(texts))
    assert weight[1].tolist() == [0] * (size + 1)
    assert weight[0].sum() == len(tokenizer("a")) + 1
    assert ids[1].tolist() == [1, *tokenizer(prompt)]


def test_weights_of_rows(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 16)
    plain = to_numpy(preprocessor(TEXTS))[3]
    for weights in ([1, 0.5, 0], keras.ops.array([1, 0.5, 0])):
        weight = to_numpy(preprocessor(TEXTS, sample_weight=weights))[3]
        np.testing.assert_array_equal(
            weight, plain * np.array([[1], [0.5], [0]])
        )
    with pytest.raises(ValueError, match="3 texts"):
        preprocessor(TEXTS, sample_weight=[1, 2])


def test_rows_for_generation(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(
        tokenizer, 24, add_end_token=True
    )
    rows = [[1, *tokenizer(text)] for text in TEXTS]
    wanted = expected_rows(rows, 24, 0)
    for x in (TEXTS, {"prompts": TEXTS}, np.array(TEXTS)):
        batch = preprocessor.generate_preprocess(x)
        assert list(batch) == ["token_ids", "padding_mask"]
        for part, array in zip(batch.values(), wanted, strict=False):
            assert keras.ops.is_tensor(part)
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(part), array
            )
    assert preprocessor.generate_postprocess(batch) == TEXTS
    one = preprocessor.generate_preprocess(TEXTS[1], sequence_length=12)
    assert one["token_ids"].shape == (12,)
    assert preprocessor.generate_postprocess(one) == TEXTS[1]


def test_special_tokens_are_left_out_of_a_generation(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 24)
    ids = [1, *tokenizer("a b"), 2, 2, *tokenizer("</s>c"), 5, 5]
    mask = [True] * (len(ids) - 2) + [False] * 2
    batch = {"token_ids": np.array([ids]), "padding_mask": np.array([mask])}
    assert preprocessor.generate_postprocess(batch) == ["a bc"]


def test_prompt_that_is_too_long(tokenizer):
    prompt = ["", "the model reads a text"]
    size = 1 + len(tokenizer(prompt[1]))
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, size - 1)
    message = f"sequence_length={size - 1} and a prompt of {size}"
    with pytest.raises(ValueError, match=message):
        preprocessor.generate_preprocess(prompt)
    ids = preprocessor.generate_preprocess(prompt, size)["token_ids"]
    assert ids.shape == (2, size)
    preprocessor.truncate = True
    ids = preprocessor.generate_preprocess(prompt)["token_ids"]
    assert (
        keras.ops.convert_to_numpy(ids)[1].tolist()
        == ([1, *tokenizer(prompt[1])][:-1])
    )


def test_chat(tokenizer):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 64)
    chat = [{"role": "user", "content": "the text"}]
    ids = tokenizer("<|user|>\nthe text</s>\n<|assistant|>\n")
    assert ids == tokenizer(tokenizer.render_chat(chat, True))
    batch = preprocessor.chat_inputs(chat, len(ids) + 2)
    row = keras.ops.convert_to_numpy(batch["token_ids"])
    assert row.tolist() == [[*ids, 0, 0]]
    mask = keras.ops.convert_to_numpy(batch["padding_mask"])
    assert mask.tolist() == [[True] * len(ids) + [False] * 2]
    assert preprocessor.chat_inputs(chat)["token_ids"].shape == (1, 64)
    with pytest.raises(ValueError, match="must fit"):
        preprocessor.chat_inputs(chat, len(ids) - 1)


def test_tensorflow_graph_gives_the_same(tokenizer):
    tensorflow = pytest.importorskip("tensorflow")
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 24)
    texts = {"prompts": TEXTS, "responses": TEXTS[::-1]}
    for x in (TEXTS, texts):
        wanted = preprocessor(x)
        source = tensorflow.data.Dataset.from_tensor_slices(x)
        for data in (
            source.batch(3).map(preprocessor),
            source.map(preprocessor).batch(3),
        ):
            x_spec, y_spec, _ = data.element_spec
            assert y_spec.shape[-1] == x_spec["token_ids"].shape[-1] == 24
            inputs, y, weight = next(iter(data))
            parts = [*inputs.values(), y, weight]
            for part, array in zip(parts, to_numpy(wanted), strict=True):
                np.testing.assert_array_equal(part.numpy(), array)
    data = tensorflow.data.Dataset.from_tensor_slices(TEXTS).batch(3)
    [batch] = data.map(preprocessor.generate_preprocess)
    wanted = preprocessor.generate_preprocess(TEXTS)
    np.testing.assert_array_equal(
        batch["token_ids"].numpy(),
        keras.ops.convert_to_numpy(wanted["token_ids"]),
    )


def make_model(tokenizer, **options):
    backbone = keras_hub.models.LlamaBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=8,
    )
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 16, **options)
    return keras_hub.models.LlamaCausalLM(backbone, preprocessor)


def test_keras_hub_trains_and_generates_with_it(tokenizer):
    model = make_model(tokenizer)
    model.compile(optimizer="sgd", sampler="greedy")
    texts = ["the text", "a model"] * 2
    history = model.fit(texts, batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    pairs = {"prompts": texts, "responses": texts}
    history = model.fit(pairs, batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    outputs = model.generate(["the text", "a"], max_length=12)
    assert outputs[0].startswith("the text")
    assert outputs[1].startswith("a")
    assert model.generate("a", max_length=12) == outputs[1]


def test_round_trip_of_config(tokenizer, tmp_path):
    preprocessor = BFTLlamaCausalLMPreprocessor(
        tokenizer, 9, add_start_token=False, add_end_token=True, truncate=True
    )
    config = keras.saving.serialize_keras_object(preprocessor)
    copy = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    tokenizer.save_assets(tmp_path)
    copy.tokenizer.load_assets(tmp_path)
    assert copy.get_config() == preprocessor.get_config()
    check(copy(make_texts(20)), to_numpy(preprocessor(make_texts(20))))
    assert (copy.add_start_token, copy.add_end_token) == (False, True)
    assert copy.truncate is True


def test_round_trip_in_a_preset(tokenizer, tmp_path, monkeypatch):
    model = make_model(tokenizer, add_end_token=True)
    preset = str(tmp_path / "preset")
    model.save_to_preset(preset)
    for cls in (BFTLlamaTokenizer, BFTLlamaCausalLMPreprocessor):
        monkeypatch.setattr(cls, "backbone_cls", keras_hub.models.LlamaBackbone)
    copy = BFTLlamaCausalLMPreprocessor.from_preset(preset)
    check(copy(make_texts(20)), to_numpy(model.preprocessor(make_texts(20))))
    task = keras_hub.models.LlamaCausalLM.from_preset(preset)
    assert type(task.preprocessor) is BFTLlamaCausalLMPreprocessor
    assert task.preprocessor.tokenizer("a") == tokenizer("a")


@pytest.mark.parametrize(
    "x, message",
    [
        (3, "`x` must"),
        ({"prompt": ["a"]}, r"keys \['prompt'\]"),
        ({"responses": ["a"]}, r"keys \['responses'\]"),
        ({"prompts": ["a"], "responses": []}, "1 prompts and 0 responses"),
        ({"prompts": ["a"], "responses": "a"}, "as many responses"),
    ],
)
def test_inputs_that_are_none(tokenizer, x, message):
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 16)
    with pytest.raises(ValueError, match=message):
        preprocessor(x)


def test_arguments_outside_their_domain(tokenizer):
    with pytest.raises(ValueError, match="`tokenizer` must be"):
        BFTLlamaCausalLMPreprocessor(None)
    for length in (0, 1, 2.5, True):
        with pytest.raises(ValueError, match=f"sequence_length={length}"):
            BFTLlamaCausalLMPreprocessor(tokenizer, length)
    preprocessor = BFTLlamaCausalLMPreprocessor(tokenizer, 16)
    with pytest.raises(ValueError, match="sequence_length=1"):
        preprocessor(TEXTS, sequence_length=1)
    with pytest.raises(ValueError, match="sequence_length=0"):
        preprocessor.generate_preprocess(TEXTS, sequence_length=0)
    with pytest.raises(ValueError, match="targets follow"):
        preprocessor(TEXTS, [1, 2, 3])
    with pytest.raises(ValueError, match="prompts alone"):
        preprocessor.generate_preprocess({"prompts": "a", "responses": "b"})


def test_start_token_that_is_not_there(tmp_path):
    folder = write_sentencepiece(
        tmp_path / "x", bos_token=None, add_bos_token=False
    )
    tokenizer = BFTLlamaTokenizer.from_folder(folder)
    assert tokenizer.start_token_id is None
    with pytest.raises(ValueError, match="no start token"):
        BFTLlamaCausalLMPreprocessor(tokenizer, add_start_token=True)
    ids = to_numpy(BFTLlamaCausalLMPreprocessor(tokenizer, 4)("</s>"))[0]
    assert ids.tolist() == [2, 2, 2, 2]


def test_prompt_that_is_cut_itself(tokenizer):
    """A cut prompt has no weight, even without a response behind it."""
    texts = {"prompts": ["the model reads a text"], "responses": [""]}
    options = {"sequence_length": 3, "add_end_token": True}
    with pytest.raises(ValueError, match="leaves no room"):
        BFTLlamaCausalLMPreprocessor(tokenizer, **options)(texts)
    preprocessor = BFTLlamaCausalLMPreprocessor(
        tokenizer, truncate=True, **options
    )
    assert to_numpy(preprocessor(texts))[3].sum() == 0
