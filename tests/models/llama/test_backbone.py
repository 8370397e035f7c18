"""The decoder's body: transformers' states, and a precision beside them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bft.models import BFTLlamaBackbone
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import inputs_of
from tests.models.llama.small_models import logits_of
from tests.models.llama.small_models import make_filter
from tests.models.llama.small_models import make_ids
from tests.models.llama.small_models import make_lm
from tests.models.llama.small_models import transformers_logits

TINYLLAMA = {
    "vocabulary_size": 32000,
    "num_layers": 22,
    "num_query_heads": 32,
    "num_key_value_heads": 4,
    "hidden_dim": 2048,
    "intermediate_dim": 5632,
    "layer_norm_epsilon": 1e-5,
}


def encode(backbone, token_ids, padding_mask=None):
    inputs = inputs_of(token_ids, padding_mask)
    return arrays(backbone.encode(**inputs))


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["standard", "filter"])
def backbone(request):
    backbone = make_filter().backbone
    for layer in backbone.transformer_layers:
        layer.strength.assign(request.param)
    return backbone


def test_the_strength_changes_the_logits():
    ids = make_ids(B, T)
    got = logits_of(make_lm(strength=1.0), ids)
    assert np.abs(got - transformers_logits("grouped", ids)).max() > 0.1


def test_config_comes_back():
    options = {
        "vocabulary_size": 50,
        "num_layers": 3,
        "num_query_heads": 4,
        "hidden_dim": 16,
        "intermediate_dim": 24,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "rope_theta": 500.0,
        "rope_scaling": {"type": "linear", "factor": 2.0},
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "use_bias": True,
        "max_position_embeddings": 64,
        "dropout": 0.1,
        "bayesian": True,
        "strength": 0.5,
        "trainable_strength": True,
        "form": "full",
        "precision": "token",
        "prior_dim": 8,
    }
    backbone = BFTLlamaBackbone(**options, dtype="mixed_bfloat16", name="body")
    config = backbone.get_config()
    assert {name: config[name] for name in options} == options
    # As it is written in a preset.
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(backbone)
    )
    assert again.get_config() == config
    assert again.dtype_policy.name == "mixed_bfloat16"
    names = [weight.path for weight in backbone.weights]
    assert [weight.path for weight in again.weights] == names
    assert sum("/strength" in name for name in names) == 3
    assert again.transformer_layers[0].trainable_strength


def test_defaults_follow_from_the_heads():
    backbone = BFTLlamaBackbone(50, 1, 4, 16, 24)
    config = backbone.get_config()
    assert (config["num_key_value_heads"], config["head_dim"]) == (4, 4)
    # What the last layer predicts is read by nothing.
    [layer] = backbone.transformer_layers
    assert not layer.feed_forward.log_process_noise.trainable


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive"),
        ({"num_layers": 1.5}, "`num_layers` must be a positive"),
        ({"hidden_dim": -4}, "`hidden_dim` must be a positive"),
        ({"num_query_heads": 0}, "`num_query_heads` must be a positive"),
        ({"intermediate_dim": 0}, "`intermediate_dim` must be a positive"),
        ({"hidden_dim": 18}, "`num_heads` must divide the width"),
        ({"num_key_value_heads": 3}, "must divide `num_heads`"),
        ({"head_dim": 5}, "`head_dim` must be even"),
        ({"strength": -1.0}, "`strength` must be zero or more"),
        ({"form": "heavy"}, "`form` must be one of"),
        ({"prior_dim": 0}, "`prior_dim` must be a positive"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(options, error):
    arguments = {
        "vocabulary_size": 50,
        "num_layers": 1,
        "num_query_heads": 4,
        "hidden_dim": 16,
        "intermediate_dim": 24,
    }
    with pytest.raises(ValueError, match=error + ".*Received: "):
        BFTLlamaBackbone(**arguments | options)


def test_tinyllama_has_its_parameters(monkeypatch):
    # Nothing is drawn, and the parts are as large as the whole's.
    monkeypatch.setattr(
        keras.initializers.RandomNormal,
        "__call__",
        lambda self, shape, dtype=None: ops.zeros(shape, dtype),
    )

    def count(bayesian, **sizes):
        backbone = BFTLlamaBackbone(
            **TINYLLAMA | sizes, bayesian=bayesian, dtype="bfloat16"
        )
        return backbone.count_params()

    totals = {}
    for bayesian in (False, True):
        small = count(bayesian, num_layers=1, vocabulary_size=1)
        layer = count(bayesian, num_layers=2, vocabulary_size=1) - small
        token = count(bayesian, num_layers=1, vocabulary_size=2) - small
        totals[bayesian] = small + 21 * layer + 31999 * token
    assert totals[False] == 1_100_048_384
    # Process noise and strength of a layer, and the prior's two layers.
    added = 22 * (2048 + 1) + (2048 + 1) * 16 + 17
    assert totals[True] - totals[False] == added
    assert added / totals[False] < 1e-3


def test_packed_segments_are_strangers(backbone):
    sizes = (3, 4, 5)
    ids, mask = make_ids(1, T), np.repeat([1, 2, 3], sizes)[None]
    packed = encode(backbone, np.tile(ids, (B, 1)), np.tile(mask, (B, 1)))
    alone, real = np.zeros((B, T), "int32"), np.zeros((B, T), "int32")
    starts = (0, 3, 7)
    for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        alone[row, :size] = ids[0, start : start + size]
        real[row, :size] = 1
    separate = encode(backbone, alone, real)
    for got, want in zip(packed, separate, strict=True):
        for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            np.testing.assert_allclose(
                got[0, start : start + size], want[row, :size], atol=2e-5
            )


def test_padding_on_either_side_changes_nothing(backbone):
    ids = make_ids(1, T)[0]
    rows, mask = np.zeros((B, T), "int32"), np.zeros((B, T), "int32")
    places = (slice(0, 7), slice(5, 12), slice(3, 10))
    for row, place in enumerate(places):
        rows[row, place], mask[row, place] = ids[:7], 1
    padded = encode(backbone, rows, mask)
    full = encode(backbone, np.tile(ids, (B, 1)))
    for got, want in zip(padded, full, strict=True):
        for row, place in enumerate(places):
            # A residual variance is a difference of nearly equal sums.
            np.testing.assert_allclose(
                got[row, place], want[row, :7], rtol=1e-4, atol=1e-4
            )


def test_the_future_is_not_seen(backbone):
    ids = make_ids(B, T)
    other = ids.copy()
    other[:, 8:] = make_ids(B, 4, seed=1)
    for got, want in zip(
        encode(backbone, other), encode(backbone, ids), strict=True
    ):
        np.testing.assert_allclose(got[:, :8], want[:, :8], atol=1e-5)
        assert np.abs(got[:, 8:] - want[:, 8:]).max() > 0.01


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)]
)
def test_low_precision_is_near(dtype, tolerance):
    ids = make_ids(B, T)
    want = encode(make_filter().backbone, ids)
    backbone = make_filter(dtype=dtype).backbone
    states, log_precision = backbone.encode(**inputs_of(ids))
    assert keras.backend.standardize_dtype(states.dtype) == dtype[6:]
    assert keras.backend.standardize_dtype(log_precision.dtype) == "float32"
    for got, exact in zip(
        (numpy(states), numpy(log_precision)), want, strict=True
    ):
        assert np.isfinite(got).all()
        error = np.sqrt(np.mean(np.square(got - exact)))
        assert error < tolerance * np.std(exact)
