"""The cache, step by step, and what the model refuses."""

import numpy as np
import pytest
from keras import ops

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from keras_bft.models.llama._prompts import check_prompts
from keras_bft.models.llama._prompts import filler_id
from keras_bft.models.llama._prompts import generated_mask
from keras_bft.models.llama._prompts import prompt_bounds
from keras_bft.models.llama._prompts import with_known_tokens
from tests.compiled import compiled
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import set_strength


def decode(lm, token_ids, start, prefill):
    """Logits of a prefill and of one token after another."""

    def step(tokens, cache, index):
        logits, _, cache = lm.call_with_cache(tokens, cache, index, statistics)
        return logits, cache

    statistics = [
        layer.weight_statistics() for layer in lm.backbone.transformer_layers
    ]
    # Slots that hold nothing yet hold what must not matter.
    layers = lm.backbone.make_cache(len(token_ids), token_ids.shape[1] + 2)
    layers = [{name: x + 3.0 for name, x in cache.items()} for cache in layers]
    cache = {"layers": layers, "start": ops.convert_to_tensor(start, "int32")}
    step = compiled(step, lm.backbone)
    parts = []
    bounds = [0, *range(prefill, token_ids.shape[1] + 1)]
    for first, last in zip(bounds[:-1], bounds[1:], strict=True):
        tokens = ops.convert_to_tensor(token_ids[:, first:last])
        logits, cache = step(tokens, cache, ops.convert_to_tensor(first))
        parts.append(numpy(logits))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(
    "options",
    [
        {"strength": 0.0},
        {"strength": 1.0},
        {"strength": 1.0, "form": "full"},
        {"strength": 1.0, "precision": "token", "kind": "biases"},
        {"bayesian": False},
    ],
    ids=str,
)
def test_cached_equals_uncached(options):
    if options.get("strength"):
        lm = make_filter(**options)
    else:
        lm = make_lm(**options)
    ids, start = make_ids(B, T), np.array([0, 2, 5])
    mask = np.arange(T)[None] >= start[:, None]
    want = logits_of(lm, ids, mask)
    got = decode(lm, ids, start, prefill=8)
    # Rounding in float32: in float64 both agree to 1e-14.
    tolerance = 3e-4 if options.get("form") == "full" else 1e-4
    np.testing.assert_allclose(got[mask], want[mask], atol=tolerance)


def test_without_statistics_at_hand_the_logits_are_the_same():
    lm, ids = make_filter(), make_ids(B, T)
    cache = {
        "layers": lm.backbone.make_cache(B, T),
        "start": ops.zeros((B,), "int32"),
    }
    logits, states, _ = lm.call_with_cache(
        ops.convert_to_tensor(ids), cache, ops.convert_to_tensor(0)
    )
    np.testing.assert_allclose(numpy(logits), logits_of(lm, ids), atol=1e-4)
    assert tuple(states.shape) == (B, T, 32)


def test_the_strength_is_a_weight():
    lm, ids = make_filter(), make_ids(B, T)
    full = logits_of(lm, ids)
    set_strength(lm, 0.0)
    off = logits_of(lm, ids)
    np.testing.assert_allclose(off, logits_of(make_lm(), ids), atol=1e-5)
    assert np.abs(full - off).max() > 0.1


def test_bounds_of_prompts():
    mask = np.array([[0, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1]])
    start, end = prompt_bounds(ops.convert_to_tensor(mask, "bool"))
    assert numpy(start).tolist() == [1, 0, 0, 3]
    assert numpy(end).tolist() == [3, 4, 1, 4]


def test_a_text_goes_on_to_its_first_new_stop():
    tokens = np.array([[7, 5, 1, 5, 2, 5], [7, 5, 1, 2, 7, 3]])
    prompt = np.array([[0, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]], bool)
    arguments = (
        ops.convert_to_tensor(tokens),
        ops.convert_to_tensor(prompt),
        ops.convert_to_tensor([1, 0], "int32"),
    )
    mask = numpy(generated_mask(*arguments, stop_token_ids=(5, 7)))
    want = [[0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert mask.astype(int).tolist() == want
    for none in (None, ()):
        mask = numpy(generated_mask(*arguments, stop_token_ids=none))
        assert mask.astype(int).tolist() == [[0] + 5 * [1], 6 * [1]]


def test_known_tokens_are_certain():
    logits = with_known_tokens(
        ops.convert_to_tensor(np.ones((2, 3), "float32")),
        ops.convert_to_tensor([[2], [0]], "int32"),
        ops.convert_to_tensor([True, False]),
    )
    got = numpy(ops.softmax(logits))
    np.testing.assert_allclose(got, [[0, 0, 1], 3 * [1 / 3]], atol=1e-6)


def test_the_filler_stops_nothing():
    assert filler_id(None) == 0
    assert filler_id((2, 0, 1)) == 3


@pytest.mark.parametrize(
    ("mask", "row"),
    [
        ([[1, 1, 0], [0, 0, 0]], 1),
        ([[1, 0, 1], [1, 1, 1]], 0),
    ],
)
def test_prompts_with_holes_and_empty_ones_are_refused(mask, row):
    inputs = {"token_ids": np.ones((2, 3)), "padding_mask": np.array(mask)}
    with pytest.raises(ValueError, match=f"Received: row {row} of"):
        check_prompts(inputs)
    lm = BFTLlamaCausalLM(BFTLlamaBackbone(50, 1, 2, 8, 8))
    with pytest.raises(ValueError, match="one run of at least one token"):
        lm.generate(inputs, stop_token_ids=None)


def test_inputs_have_one_shape():
    for ids, mask in (((2, 3), (2, 4)), ((3,), (3,))):
        inputs = {"token_ids": np.ones(ids), "padding_mask": np.ones(mask)}
        with pytest.raises(ValueError, match="Received: token_ids of shape"):
            check_prompts(inputs)


def test_a_model_without_a_tokenizer_says_so():
    lm = BFTLlamaCausalLM(BFTLlamaBackbone(50, 1, 2, 8, 8))
    with pytest.raises(ValueError, match="needs a tokenizer"):
        lm.chat([{"role": "user", "content": "a"}])
    with pytest.raises(ValueError, match="preprocessor"):
        lm.generate({"token_ids": np.ones((1, 4))})
