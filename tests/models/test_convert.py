"""Layers of keras-hub as filters that compute the same at strength 0."""

import keras
import numpy as np
import pytest

import keras_bft
from keras_bft import convert
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import numpy

keras_hub = pytest.importorskip("keras_hub")

B, T, D, H = 2, 4, 8, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(B, T, D)).astype("float32")
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], bool)
KINDS = {
    "encoder": keras_hub.layers.TransformerEncoder,
    "decoder": keras_hub.layers.TransformerDecoder,
}


def randomized(layer):
    rng = np.random.default_rng(1)
    for variable in layer.trainable_variables:
        noise = rng.normal(scale=0.5, size=variable.shape)
        variable.assign(numpy(variable) + noise)
    return layer


def hub_layer(kind, **options):
    layer = KINDS[kind](12, num_heads=H, name="hub", **options)
    layer.build((None, None, D))
    return randomized(layer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"normalize_first": True, "activation": "gelu"},
        # A large epsilon shows.
        {"layer_norm_epsilon": 0.3},
    ],
    ids=["pre-norm", "post-norm"],
)
def test_outputs_are_those_of_the_original(kind, options):
    old = hub_layer(kind, **options)
    weights = [numpy(variable) for variable in old.variables]
    new = convert(old, form="full")
    mask = {"padding_mask": MASK}
    if kind == "decoder":
        mask = {"decoder_padding_mask": MASK}
    want = numpy(old(X, **mask))
    state, log_precision = arrays(
        new(X, np.zeros((B, T, 1), "float32"), padding_mask=MASK)
    )
    np.testing.assert_allclose(state[MASK], want[MASK], atol=1e-5)
    assert log_precision.shape == (B, T, D) and np.std(log_precision) > 0.1
    # In the original's place.
    alone = numpy(new(X, padding_mask=MASK))
    np.testing.assert_allclose(alone[MASK], want[MASK], atol=1e-5)
    # The filter is there.
    new.strength.assign(1.0)
    assert np.max(np.abs(numpy(new(X, padding_mask=MASK)) - want)) > 1e-2
    for variable, before in zip(old.variables, weights, strict=True):
        np.testing.assert_array_equal(numpy(variable), before)


def test_options_reach_the_new_layer_and_its_config_restores_it():
    new = convert(
        hub_layer("decoder", dropout=0.1),
        strength=0.5,
        trainable_strength=True,
        dropout=0.2,
    )
    config = new.get_config()
    assert config["causal"] and config["dropout"] == 0.2
    assert config["dropout_mode"] == "inverted" and new.name == "hub"
    assert float(numpy(new.strength)) == 0.5 and new.strength.trainable
    again = keras_bft.layers.BFTLayer.from_config(config)
    again.build((None, None, D), (None, None, D))
    assert [v.shape for v in again.weights] == [v.shape for v in new.weights]


def test_a_layer_in_the_place_of_the_original_learns_its_strength():
    old = hub_layer("encoder", normalize_first=True)
    new = convert(old, trainable_strength=True, trainable_process_noise=False)
    model = keras.Sequential([keras.Input((T, D)), new])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    # The filter starts where the original was.
    losses = model.fit(X, 0 * X, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(
        losses[0], np.mean(numpy(old(X)) ** 2), rtol=1e-5
    )
    assert losses[1] < losses[0]
    assert float(numpy(new.strength)) > 0


def test_a_layer_inside_a_model_in_half_precision():
    inputs = keras.Input((T, D))
    old = keras_hub.layers.TransformerEncoder(
        12, num_heads=H, normalize_first=True, dtype="mixed_bfloat16"
    )
    model = keras.Model(inputs, old(inputs), name="outer")
    new = convert(model.layers[1])
    assert new.compute_dtype == "bfloat16" and new.variable_dtype == "float32"
    np.testing.assert_allclose(numpy(new(X)), numpy(model(X)), atol=0.1)


class Encoder(keras_hub.layers.TransformerEncoder):
    """May compute anything."""


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: hub_layer("encoder", dropout=0.1), "`dropout` of 'hub' must"),
        (
            lambda: hub_layer("encoder", activation="softmax"),
            "`activation` of 'hub' must be elementwise",
        ),
        (lambda: KINDS["encoder"](12, 2), "`built` of .* must be True"),
        (lambda: Encoder(12, 2), "not of a subclass.*Received: .*Encoder"),
        (lambda: keras.layers.Dense(3), "must be one of keras_hub.layers.Tr"),
        (lambda: "bert", "must be one of .* Received: model='bert'"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        convert(make())


def test_cross_attention_is_refused():
    layer = keras_hub.layers.TransformerDecoder(12, num_heads=H)
    layer.build((None, None, D), (None, None, D))
    with pytest.raises(ValueError, match="`encoder_sequence_shape` of"):
        convert(layer)


def test_other_epsilons_and_what_the_original_decides_are_refused():
    layer = hub_layer("encoder")
    with pytest.raises(ValueError, match="`causal` is decided by.*causal=True"):
        convert(layer, causal=True)
    norms = [x for x in layer._flatten_layers() if x.name.endswith("_norm")]
    norms[0].epsilon = 0.1
    with pytest.raises(ValueError, match="`epsilon` of 'hub' must be the same"):
        convert(layer)


@pytest.mark.parametrize("way", ["quantization_mode", "lora_enabled"])
def test_changed_weights_are_refused(way):
    layer = hub_layer("encoder")
    [dense] = [
        part
        for part in layer._flatten_layers()
        if part.name == "feedforward_output_dense"
    ]
    if way == "lora_enabled":
        dense.enable_lora(2)
    else:
        dense.quantize("int8")
    with pytest.raises(ValueError, match=f"`{way}` of 'feedforward_output_d"):
        convert(layer)
