"""Process noise and prior against values computed from transformers."""

import numpy as np
import pytest
import torch

from keras_bft.models.llama.calibration import calibrate
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_llama

# More than one batch of a pass.
ROWS = 6


def transformers_moves(ids):
    """Embeddings and feed-forward updates, `(tokens, channels)` each."""
    model, _ = transformers_llama()
    moves = []
    hooks = [
        module.register_forward_hook(
            lambda _, inputs, output: moves.append(output.double().numpy())
        )
        for module in (
            model.model.embed_tokens,
            *(layer.mlp for layer in model.model.layers),
        )
    ]
    with torch.no_grad():
        model(torch.tensor(ids, dtype=torch.long))
    for hook in hooks:
        hook.remove()
    return [move.reshape(-1, move.shape[-1]) for move in moves]


@pytest.mark.parametrize("precision", ["channel", "token"])
def test_values_are_those_of_the_standard_decoder(precision):
    lm, ids = make_filter(precision=precision), make_ids(ROWS, T)
    embeddings, *updates = transformers_moves(ids)
    lm.calibrate(ids)
    for layer, update in zip(
        lm.backbone.transformer_layers, updates, strict=True
    ):
        variance = update.var(axis=0)
        if precision == "token":
            variance = variance.mean(keepdims=True)
        np.testing.assert_allclose(
            numpy(layer.feed_forward.log_process_noise.value),
            1.0 + np.log(variance),
            atol=1e-4,
        )
        # It was changed for the pass alone.
        assert float(numpy(layer.strength.value)) == 1.0
    prior = numpy(lm.backbone.prior(embeddings[None].astype("float32")))
    np.testing.assert_allclose(prior, -np.log(embeddings.var()), atol=1e-4)


def test_padding_does_not_count():
    ids, mask = make_ids(ROWS, T), np.ones((ROWS, T), "int32")
    mask[:2, 5:], mask[2], mask[3, :4] = 0, 0, 0
    noises = []
    for filler in (0, 7):
        lm = make_filter()
        lm.calibrate(np.where(mask, ids, filler), mask)
        noises.append(
            [
                numpy(layer.feed_forward.log_process_noise.value)
                for layer in lm.backbone.transformer_layers
            ]
        )
    np.testing.assert_allclose(noises[0], noises[1], atol=1e-5)
    lm.calibrate(ids)
    noise = lm.backbone.transformer_layers[0].feed_forward.log_process_noise
    assert np.abs(numpy(noise.value) - noises[0][0]).max() > 0.01


def test_the_standard_logits_stay_the_same():
    lm, ids = make_lm(), make_ids(3, T)
    before = logits_of(lm, ids)
    lm.calibrate(ids)
    np.testing.assert_array_equal(logits_of(lm, ids), before)


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(ValueError, match="Received: bayesian=False"):
        make_lm(bayesian=False).calibrate(make_ids(3, T))
    backbone = make_lm().backbone
    with pytest.raises(ValueError, match=r"token_ids of shape \(12,\)"):
        calibrate(backbone, make_ids(T))
    with pytest.raises(ValueError, match="1 of them not padding"):
        calibrate(backbone, make_ids(1, T), np.eye(1, T))
    with pytest.raises(ValueError, match=r"padding_mask of shape \(3, 13\)"):
        calibrate(backbone, make_ids(3, T), np.ones((3, T + 1)))
    with pytest.raises(ValueError, match="`token_ids` must be from 0 to 95"):
        calibrate(backbone, make_ids(3, T) + 90)
    strengths = [
        float(numpy(layer.strength.value))
        for layer in backbone.transformer_layers
    ]
    assert strengths == [0.0, 0.0]
