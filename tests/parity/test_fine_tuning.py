"""Fine-tuning at strength 0 is that of transformers with torch's AdamW."""

import copy

import keras
import numpy as np
import pytest
import torch

from keras_bft.data import TokenDataset
from tests.models.llama.small_models import VOCABULARY
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_llama

STEPS, RATE, DECAY = 20, 1e-3, 0.1
# On TensorFlow the gradient of an embedding is a list of rows, and Keras 3.15
# clips by a norm for which a row that occurs twice is two rows.
CLIP = 1e9 if keras.backend.backend() == "tensorflow" else 0.5
# Keras adds epsilon before it corrects the bias of the second moment. At 0.95
# that is soon over, at 0.999 it takes thousands of steps.
BETAS = (0.9, 0.95)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, VOCABULARY, size) for size in [9] * 6 + [13] * 6]
    # The second half of a row is its answer.
    weights = [np.arange(len(row)) >= len(row) // 2 for row in rows]
    return TokenDataset(rows, weights, tokens_per_batch=36, seed=1)


@pytest.fixture(scope="module")
def expected(dataset):
    """Losses of transformers on the same batches."""
    model = copy.deepcopy(transformers_llama()[0]).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY
    )
    losses = []
    for step in range(STEPS):
        x, y, weight = (
            {key: torch.tensor(value).long() for key, value in part.items()}
            if isinstance(part, dict)
            else torch.tensor(part)
            for part in dataset[step % len(dataset)]
        )
        logits = model(x["token_ids"], attention_mask=x["padding_mask"]).logits
        loss = torch.nn.functional.cross_entropy(
            logits[weight > 0], y[weight > 0].long()
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("options", [{}, {"bayesian": False}])
def test_losses_of_twenty_steps(options, dataset, expected):
    lm = make_lm(**options)
    lm.compile(
        keras.optimizers.AdamW(
            RATE, DECAY, *BETAS, epsilon=1e-8, global_clipnorm=CLIP
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        weighted_metrics=[],
    )
    losses = []
    for step in range(STEPS):
        # The mean over the epoch so far starts anew with each step.
        losses.append(float(lm.train_on_batch(*dataset[step % len(dataset)])))
        lm.reset_metrics()
    np.testing.assert_allclose(losses, expected, atol=1e-3)
    assert losses[-1] < 0.8 * losses[0]
