"""Generation: transformers' greedy tokens, and every sampler's rules."""

import keras
import keras_hub
import numpy as np
import pytest
import torch
import transformers

from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models.llama import generation
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import set_strength
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.small_models import transformers_logits
from tests.models.llama.tokenizer_folders import write_byte_level

# More slots than are prefilled at once. All tests use this shape.
SLOTS = 24
SIZES = (4, 9, 13)
LEFT = [14 - size for size in SIZES]
CHAT = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ ': ' }}{% endif %}"
)


@pytest.fixture(scope="module", autouse=True)
def _short_prefill():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_PREFILL_MULTIPLE", 8)
        yield


@pytest.fixture(scope="module")
def lm():
    lm = make_filter()
    lm.compile(sampler="greedy")
    return lm


def prompts(starts=(0, 0, 0), sizes=SIZES, padding=0):
    """Three prompts of different lengths, each where it is told to begin."""
    ids = make_ids(len(sizes), SLOTS)
    token_ids = np.full_like(ids, padding)
    mask = np.zeros_like(ids)
    for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        token_ids[row, start : start + size] = ids[row, :size]
        mask[row, start : start + size] = 1
    return {"token_ids": token_ids, "padding_mask": mask}


def texts_of(outputs):
    pairs = zip(outputs["token_ids"], outputs["padding_mask"], strict=True)
    return [ids[mask.astype(bool)].tolist() for ids, mask in pairs]


def transformers_tokens(prompt, num_beams=1):
    model, _ = transformers_llama()
    output = model.generate(
        torch.tensor(np.asarray(prompt)[None], dtype=torch.long),
        max_length=SLOTS,
        num_beams=num_beams,
        do_sample=False,
        pad_token_id=0,
    )
    return output[0].tolist()


def test_greedy_is_that_of_transformers(lm):
    set_strength(lm, 0.0)
    inputs = prompts()
    got = texts_of(lm.generate(inputs, stop_token_ids=None))
    want = [
        transformers_tokens(ids[:size])
        for ids, size in zip(inputs["token_ids"], SIZES, strict=True)
    ]
    assert got == want


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_a_batch_gives_what_each_prompt_gives(lm, strength):
    set_strength(lm, strength)
    together = texts_of(lm.generate(prompts(), stop_token_ids=None))
    left = texts_of(lm.generate(prompts(LEFT), stop_token_ids=None))
    for row, size in enumerate(SIZES):
        alone = prompts()
        alone = {name: x[[row] * 3] for name, x in alone.items()}
        [want, *same] = texts_of(lm.generate(alone, stop_token_ids=None))
        assert same == [want, want]
        assert together[row] == want
        assert left[row] == want[: size + 10]
    set_strength(lm, 1.0 - strength)
    other = texts_of(lm.generate(prompts(), stop_token_ids=None))
    assert other != together


def test_each_text_ends_at_its_stop(lm):
    set_strength(lm, 1.0)
    whole = texts_of(lm.generate(prompts(), stop_token_ids=None))
    stops = (
        whole[0][SIZES[0] + 5],
        whole[1][SIZES[1] + 8],
        # Stands in a prompt, where it stops nothing.
        whole[2][3],
    )
    want = []
    for text, size in zip(whole, SIZES, strict=True):
        ends = [i for i in range(size, SLOTS) if text[i] in stops]
        want.append(text[: min(ends, default=SLOTS) + 1])
    assert sum(len(text) < SLOTS for text in want) >= 2
    # Padding may be a stop token, as it is for most checkpoints.
    for padding in (0, stops[0]):
        inputs = prompts(padding=padding)
        outputs = lm.generate(inputs, stop_token_ids=stops)
        assert texts_of(outputs) == want
        mask = outputs["padding_mask"].astype(bool)
        assert (outputs["token_ids"][~mask] == padding).all()
    stripped = lm.generate(
        prompts(padding=stops[0]), stop_token_ids=stops, strip_prompt=True
    )
    assert texts_of(stripped) == [
        text[size:] for text, size in zip(want, SIZES, strict=True)
    ]


def test_a_prompt_longer_than_the_prefill(lm):
    set_strength(lm, 0.0)
    inputs = prompts(sizes=(18, 19, 24))
    got = texts_of(lm.generate(inputs, stop_token_ids=None))
    for text, ids, size in zip(
        got, inputs["token_ids"], (18, 19, 24), strict=True
    ):
        assert text[:size] == ids[:size].tolist()
        if size < SLOTS:
            assert text == transformers_tokens(ids[:size])


def ranks_and_mass(texts):
    """Rank of each new token, and the probability of those before it."""
    logits = transformers_logits("grouped", texts)
    exact = np.exp(logits - logits.max(-1, keepdims=True))
    probability = exact / exact.sum(-1, keepdims=True)
    for row, (text, size) in enumerate(zip(texts, SIZES, strict=True)):
        for place in range(size, SLOTS):
            given = probability[row, place - 1]
            above = given > given[text[place]] + 1e-6
            yield above.sum(), given[above].sum()


@pytest.mark.parametrize(
    "sampler",
    [
        keras_hub.samplers.TopKSampler(k=3, seed=1),
        keras_hub.samplers.TopPSampler(p=0.4, seed=1),
    ],
    ids=["top_k", "top_p"],
)
def test_samplers_keep_prompts_and_rules(lm, sampler):
    set_strength(lm, 0.0)
    plain = texts_of(lm.generate(prompts(), stop_token_ids=None))
    # XLA compiles no faster by being asked again.
    lm.compile(sampler=sampler, jit_compile=False)
    first, second = (
        texts_of(lm.generate(prompts(), stop_token_ids=None)) for _ in range(2)
    )
    lm.compile(sampler="greedy")
    for texts in (first, second):
        for text, same, size in zip(texts, plain, SIZES, strict=True):
            assert text[:size] == same[:size] and len(text) == SLOTS
        places = list(ranks_and_mass(texts))
        if isinstance(sampler, keras_hub.samplers.TopKSampler):
            assert {rank for rank, _ in places} == {0, 1, 2}
        else:
            assert max(mass for _, mass in places) < 0.4 + 1e-4
            assert any(rank > 0 for rank, _ in places)
    assert first != second


def test_beams_are_those_of_transformers_one_by_one(lm):
    set_strength(lm, 0.0)
    lm.compile(
        sampler=keras_hub.samplers.BeamSampler(num_beams=3), jit_compile=False
    )
    batches = [
        lm.generate(prompts(starts), stop_token_ids=None)
        for starts in ((0, 0, 0), (SLOTS - 18, 0, 0))
    ]
    lm.compile(sampler="greedy")
    want = [
        transformers_tokens(ids[:size], num_beams=3)
        for ids, size in zip(prompts()["token_ids"], SIZES, strict=True)
    ]
    greedy = [
        transformers_tokens(text[:size])
        for text, size in zip(want, SIZES, strict=True)
    ]
    assert texts_of(batches[0]) == want != greedy
    assert texts_of(batches[1])[1:] == want[1:]


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text") / "model"
    write_byte_level(folder, chat_template=CHAT)
    transformers_llama("text")[0].save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text_lm(text_folder):
    lm = BFTLlamaCausalLM.from_preset(text_folder, sequence_length=24)
    lm.compile(sampler="greedy")
    return lm


def transformers_text(folder, text):
    """The ids of a continuation, those of the text included."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    output = transformers_llama("text")[0].generate(
        ids, max_length=24, do_sample=False, pad_token_id=0
    )
    return tokenizer, ids.shape[1], output[0]


def test_text_in_text_out(text_lm, text_folder):
    text = "the model reads"
    tokenizer, size, ids = transformers_text(text_folder, text)
    assert len(ids) > size + 2
    assert text_lm.generate(text) == tokenizer.decode(
        ids, skip_special_tokens=True
    )
    [stripped] = text_lm.generate([text], strip_prompt=True)
    assert stripped == tokenizer.decode(ids[size:], skip_special_tokens=True)
    assert text_lm.generate({"prompts": text}) == text_lm.generate(text)


def test_chat_answers_with_the_template(text_lm, text_folder):
    messages = [{"role": "user", "content": "a text"}]
    tokenizer, size, ids = transformers_text(text_folder, "a text: ")
    want = tokenizer.decode(ids[size:], skip_special_tokens=True)
    assert text_lm.chat(messages) == want
    with pytest.raises(ValueError, match="A prompt must fit"):
        text_lm.chat([{"role": "user", "content": "text " * 30}])


def test_all_end_tokens_stop(text_lm, text_folder, monkeypatch):
    received = []
    monkeypatch.setattr(
        keras_hub.models.CausalLM,
        "generate",
        lambda self, inputs, **options: received.append(options),
    )
    monkeypatch.setattr(
        text_lm.preprocessor.tokenizer, "end_tokens", ["<|endoftext|>"]
    )
    text_lm.generate("a")
    text_lm.generate("a", stop_token_ids=(5,), max_length=9)
    assert received[0]["stop_token_ids"] == (2, 0)
    assert received[1]["stop_token_ids"] == (5,)
    assert received[1]["max_length"] == 9


def test_a_long_prompt_is_refused(text_lm):
    with pytest.raises(ValueError, match="sequence_length=3 and a prompt of"):
        text_lm.generate("the model reads a text", max_length=3)


def test_low_precision_generates():
    lm = make_filter(dtype="bfloat16")
    assert keras.backend.standardize_dtype(lm.compute_dtype) == "bfloat16"
    lm.compile(sampler="greedy", jit_compile=False)
    inputs = prompts()
    texts = texts_of(lm.generate(inputs, stop_token_ids=None))
    for text, ids, size in zip(texts, inputs["token_ids"], SIZES, strict=True):
        assert text[:size] == ids[:size].tolist() and len(text) == SLOTS
        assert len(set(text[size:])) > 2
