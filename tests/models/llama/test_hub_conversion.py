"""keras-hub's Llama as this library's, with equal outputs."""

import functools

import keras_hub
import numpy as np
import pytest

from keras_bft import convert
from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from tests.layers.layer_checks import numpy
from tests.models.llama.small_models import VOCABULARY
from tests.models.llama.small_models import B
from tests.models.llama.small_models import T
from tests.models.llama.small_models import inputs_of
from tests.models.llama.small_models import make_ids

LLAMA3 = {
    "rope_max_wavelength": 500,
    "rope_frequency_adjustment_factor": 8.0,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_pretraining_sequence_length": 32,
}
IDS = make_ids(B, T)
MASK = np.ones((B, T), "int32")
MASK[1, 9:] = 0
MASK[2, :4] = 0


@functools.cache
def hub_backbone(kind="LlamaBackbone", **options):
    backbone = getattr(keras_hub.models, kind)(
        vocabulary_size=VOCABULARY,
        num_layers=2,
        num_query_heads=4,
        hidden_dim=32,
        intermediate_dim=48,
        num_key_value_heads=2,
        **{"layer_norm_epsilon": 1e-3, **options},
    )
    rng = np.random.default_rng(0)
    for variable in backbone.trainable_variables:
        noise = rng.normal(scale=0.1, size=variable.shape)
        variable.assign(numpy(variable) + noise)
    return backbone


def check_outputs(old, new):
    inputs = inputs_of(IDS, MASK)
    real = MASK == 1
    want = numpy(old(inputs))[real]
    np.testing.assert_allclose(numpy(new(inputs))[real], want, atol=1e-5)
    assert np.std(want) > 0.1


def test_a_backbone_with_the_epsilon_of_its_norms():
    old = hub_backbone()
    new = convert(old, precision="token")
    assert type(new) is BFTLlamaBackbone and new.bayesian
    assert new.get_config()["precision"] == "token"
    assert new.get_config()["layer_norm_epsilon"] == 1e-3
    check_outputs(old, new)


def test_a_language_model_with_tied_embeddings_and_llama3_positions():
    old = keras_hub.models.Llama3CausalLM(
        hub_backbone("Llama3Backbone", tie_word_embeddings=True, **LLAMA3)
    )
    new = convert(old, bayesian=False)
    assert type(new) is BFTLlamaCausalLM and new.preprocessor is None
    check_outputs(old, new)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"rope_position_scaling_factor": 4.0},
            "`rope_position_scaling_factor` of .* must be 1.0.*=4.0",
        ),
        ({"dropout": 0.1}, "`dropout` of .* must be 0.*dropout=0.1"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        convert(hub_backbone(**options))


def test_what_the_original_decides_is_no_option():
    with pytest.raises(ValueError, match="`num_layers` is decided by"):
        convert(hub_backbone(), num_layers=3)


def test_other_models_of_the_family_are_refused():
    with pytest.raises(ValueError, match="must be one of.*Received: model="):
        convert(
            keras_hub.models.MistralBackbone(
                vocabulary_size=9,
                num_layers=1,
                num_query_heads=2,
                hidden_dim=8,
                intermediate_dim=8,
                num_key_value_heads=1,
            )
        )
