"""
Title: Noisy fine-tuning
Author: the keras_bft developers
Date created: 2026/11/30
Description: A tiny Llama learns from answers of which some tokens are wrong.
Needs: keras_hub
"""

"""
## The question

Fine-tuning data are never all right. Does a decoder with the filter learn
better from answers of which some tokens are wrong, and does its precision tell
which? This guide asks it of a Llama small enough to train in a minute. It is
about how: the answer for a model worth having takes a real checkpoint, and
`examples/llama_sft.py` does there what is done here.

It needs the extra `llm` (`pip install "keras-bft[llm]"`).
"""

import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import matplotlib.pyplot as plt
import numpy as np
import tokenizers

import keras_bft
from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models import BFTLlamaCausalLMPreprocessor
from keras_bft.models import BFTLlamaTokenizer

# Set where the guide is tested: fewer epochs, and other answers.
QUICK = "KERAS_BFT_QUICK" in os.environ
TOLD, EPOCHS = (4, 2) if QUICK else (40, 15)

"""
## A tokenizer and its language

Questions about the colours of places, one word a token.
"""

PLACES = (
    "harbour market mill school bridge tower garden library well gate inn barn"
).split()
SHADES = "dark light pale bright".split()
COLORS = "red green blue white black yellow grey brown".split()
WORDS = "<s> </s> what colour is the ?".split() + PLACES + SHADES + COLORS

model = tokenizers.models.WordLevel(
    {word: number for number, word in enumerate(WORDS)}, unk_token="?"
)
words = tokenizers.Tokenizer(model)
words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
words.add_special_tokens(["<s>", "</s>"])
tokenizer = BFTLlamaTokenizer(
    words.to_str(), {"bos_token": "<s>", "eos_token": "</s>"}
)
rng = np.random.default_rng(0)


def facts():
    """An answer of two words for every place."""
    return [f"{rng.choice(SHADES)} {rng.choice(COLORS)}" for place in PLACES]


def rows_of(answers):
    """Rows of ids, one for each place, all of a length."""
    texts = [
        f"<s> what colour is the {place} ? {answer} </s>"
        for place, answer in zip(PLACES, answers, strict=True)
    ]
    return np.array(tokenizer(texts), "int32")


# Of ten tokens the last three are the answer's.
answer_mask = np.arange(10) >= 7

"""
## A checkpoint to start from

A standard decoder learns the language from one set of facts. It is written as a
Hugging Face folder, as a checkpoint that one downloads would be.
"""

keras.utils.set_random_seed(0)
backbone = BFTLlamaBackbone(
    vocabulary_size=len(WORDS),
    num_layers=2,
    num_query_heads=2,
    hidden_dim=32,
    intermediate_dim=64,
    bayesian=False,
)
lm = BFTLlamaCausalLM(
    backbone, BFTLlamaCausalLMPreprocessor(tokenizer, sequence_length=10)
)


def compile_and_fit(lm, rows, optimizer, epochs, loss=None, callbacks=()):
    """Trains on the answers of rows."""
    if loss is None:
        loss = keras.losses.SparseCategoricalCrossentropy
    lm.compile(
        optimizer,
        loss=loss(from_logits=True, reduction="mean_with_sample_weight"),
        sampler="greedy",
    )
    dataset = keras_bft.data.TokenDataset(
        list(rows), [answer_mask] * len(rows), tokens_per_batch=48 * 9, seed=0
    )
    return lm.fit(
        dataset, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
    )


before = rows_of(facts())
compile_and_fit(
    lm, np.tile(before, (TOLD, 1)), keras.optimizers.Adam(0.01), EPOCHS
)


def exact_match(lm, rows):
    """Share of questions that greedy decoding answers rightly.

    It does if, and only if, each token of the answer is the likeliest after
    the question and the tokens of the answer before it.
    """
    logits = lm({"token_ids": rows, "padding_mask": np.ones_like(rows)})
    logits = keras.ops.convert_to_numpy(logits)
    right = logits[:, :-1].argmax(axis=-1) == rows[:, 1:]
    return right[:, answer_mask[1:]].all(axis=1).mean()


print(f"facts learned before: {exact_match(lm, before):.2f}")
scratch = tempfile.TemporaryDirectory()
lm.export_to_transformers(f"{scratch.name}/checkpoint")

"""
## New facts, wrongly told

The facts change. Each is told many times, and in the answers 35 % of the
tokens, drawn at random, are replaced by random ones: the right answer is the
one that is told most often. `corrupt_labels` says which tokens it replaced; no
model sees that.
"""

after = rows_of(facts())
told = np.tile(after, (TOLD, 1))
noisy = keras_bft.data.corrupt_labels(
    list(told),
    [answer_mask] * len(told),
    rate=0.35,
    vocabulary_size=len(WORDS),
    exclude_ids=[tokenizer.end_token_id],
)
rows, corrupted = np.stack(noisy.token_ids), np.stack(noisy.corrupted)
print(f"{corrupted.sum()} of {3 * len(rows)} answer tokens are replaced:")
print(
    " ".join(WORDS[token] for token in rows[np.argmax(corrupted.any(axis=1))])
)

"""
## Arms

All start from the checkpoint and see the same rows in the same order.

- `sft`: standard fine-tuning.
- `focal`: with a focal loss, which looks more at what is predicted badly.
- `bft`: the filter, with a strength that is learned from 0.1 on.
- `bft-raised`: the filter, raised from strength 0 to 1 in half of the steps.

A filter is calibrated first: one pass over the rows sets the process noise and
the prior of the precision. What the precisions are learned with gets ten times
the learning rate.
"""

ARMS = {
    "sft": {"bayesian": False},
    "focal": {"bayesian": False},
    "bft": {"strength": 0.1, "trainable_strength": True},
    "bft-raised": {"strength": 0.0},
}


def fine_tune(arm):
    """A fine-tuned model."""
    keras.utils.set_random_seed(0)
    lm = BFTLlamaCausalLM.from_preset(
        f"{scratch.name}/checkpoint", sequence_length=10, **ARMS[arm]
    )
    optimizer = keras.optimizers.Adam(0.003)
    loss, callbacks = None, []
    if arm == "focal":
        loss = keras_bft.losses.SparseCategoricalFocalCrossentropy
    if arm.startswith("bft"):
        lm.calibrate(rows)
        optimizer = keras_bft.training.with_precision_learning_rate(
            optimizer, lm, 10.0
        )
    if arm == "bft-raised":
        steps = EPOCHS * len(rows) // 48
        callbacks = [keras_bft.training.StrengthSchedule(steps=steps // 2)]
    compile_and_fit(lm, rows, optimizer, EPOCHS, loss, callbacks)
    return lm


trained = {}
print("arm         new facts right   log-likelihood of the right answers")
for arm in ARMS:
    trained[arm] = fine_tune(arm)
    likelihood = trained[arm].score(after).log_likelihood[:, answer_mask]
    print(
        f"{arm:<12}{exact_match(trained[arm], after):15.2f}"
        f"{likelihood.sum(axis=1).mean():38.3f}"
    )

"""
With twelve facts, one is 0.08 of the first column; one seed tells little, and
here the facts are so often told that standard fine-tuning finds the right ones
too. Run the arms with several seeds before believing a difference:
`benchmarks/noisy_sft.py` does so over shares of noise.

## Does precision tell the wrong tokens?

`score` gives every token its log-likelihood, and with the filter the precision
of its state. If a wrong token had a low precision, one could find it without
knowing the right one. The curves say how well each separates replaced tokens
from the others; an area of one half is chance.
"""

scores = trained["bft-raised"].score(rows)
answers = np.broadcast_to(answer_mask, rows.shape)
curves = {
    "low precision": keras_bft.diagnostics.roc_curve(
        -scores.log_precision, corrupted, answers
    ),
    "low likelihood": keras_bft.diagnostics.roc_curve(
        -np.nan_to_num(scores.log_likelihood), corrupted, answers
    ),
}
for name, curve in curves.items():
    print(f"{name:<15} area {curve.auc:.3f}")
keras_bft.diagnostics.plot_roc(curves)
plt.show()

"""
The likelihood knows the model's own answer and compares the token with it. The
precision of a state is about what the token saw, before anything is predicted.
They are different questions, so look at both before choosing one as a filter of
data.

## What moved

How far the strength went, and the gain of each layer at the tokens of a row:
"""

for arm in ("bft", "bft-raised"):
    strengths = [
        float(keras.ops.convert_to_numpy(layer.strength))
        for layer in trained[arm].backbone.transformer_layers
    ]
    print(arm, "strength of each layer:", np.round(strengths, 2))

inputs = {"token_ids": rows[:32], "padding_mask": np.ones_like(rows[:32])}
traced = keras_bft.diagnostics.trace(trained["bft-raised"].backbone, inputs)
keras_bft.diagnostics.plot_by_position(traced)
plt.show()
scratch.cleanup()

"""
For a real checkpoint replace the folder by its own, or by
`hf://organisation/name`, and turn on LoRA with
`lm.backbone.enable_lora(16)` before compiling: the filter's weights stay
trainable and go into the LoRA file.
"""
