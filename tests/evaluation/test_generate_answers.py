import numpy as np
import pytest

from keras_bft.evaluation import generate_answers
from keras_bft.models import BFTLlamaCausalLM
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_llama
from tests.models.llama.tokenizer_folders import write_byte_level

NEW = 6


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = write_byte_level(tmp_path_factory.mktemp("lm") / "checkpoint")
    transformers_llama("text")[0].save_pretrained(folder)
    lm = BFTLlamaCausalLM.from_preset(folder, bayesian=False)
    lm.compile(sampler="greedy")
    return lm


def test_answers_are_those_of_generate_one_by_one(lm):
    tokenizer = lm.preprocessor.tokenizer
    texts = ["the model", "a", "it says what follows", "b c d", "model"]
    prompts = tokenizer.tokenize(texts)
    assert len({len(ids) for ids in prompts}) > 2
    got = generate_answers(lm, prompts, NEW, batch_size=2, stop=None, verbose=0)
    want = []
    for text, ids in zip(texts, prompts, strict=True):
        whole = lm.generate(text, max_length=len(ids) + NEW)
        assert whole.startswith(text)
        want.append(whole[len(text) :].strip())
    assert got == want and len(set(got)) > 2


def test_an_answer_ends_at_the_stop(lm):
    prompts = lm.preprocessor.tokenizer.tokenize(["the model", "it says"])
    options = {"max_new_tokens": NEW, "verbose": 0}
    whole = generate_answers(lm, prompts, stop=None, **options)
    letter = whole[0][len(whole[0]) // 2]
    cut = generate_answers(lm, prompts, stop=letter, **options)
    assert cut == [text.split(letter)[0].strip() for text in whole]
    assert cut != whole


def test_bad_arguments(lm):
    with pytest.raises(ValueError, match="prompt 1 with none"):
        generate_answers(lm, [[3], []])
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        generate_answers(lm, [[3]], 0)
    with pytest.raises(ValueError, match="must have a preprocessor"):
        generate_answers(make_lm(), [np.array([3])])
