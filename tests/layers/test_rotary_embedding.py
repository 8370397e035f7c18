"""Rotary positions: frequencies, rotation, and layers that use them."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTAttention
from keras_bft.layers import BFTLayer
from keras_bft.layers import RotaryEmbedding
from keras_bft.layers._rotary_frequencies import rotary_frequencies
from keras_bft.ops import rotate
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

LLAMA3 = {
    "type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_frequencies_fall_by_powers_of_theta():
    frequencies = rotary_frequencies(8, theta=16.0)
    np.testing.assert_allclose(frequencies, [1.0, 0.5, 0.25, 0.125], rtol=1e-6)
    scaled = rotary_frequencies(8, 16.0, {"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(scaled, frequencies / 4, rtol=1e-6)


def test_llama3_scales_long_wavelengths_alone():
    plain = rotary_frequencies(32, theta=500.0).astype("float64")
    scaled = rotary_frequencies(32, 500.0, LLAMA3)
    wavelengths = 2 * np.pi / plain
    long, short = wavelengths > 64, wavelengths < 16
    assert long.any() and short.any() and (~long & ~short).any()
    np.testing.assert_allclose(scaled[long], plain[long] / 8, rtol=1e-6)
    np.testing.assert_allclose(scaled[short], plain[short], rtol=1e-6)
    between = ~long & ~short
    smooth = (64 / wavelengths[between] - 1.0) / 3.0
    expected = (1 - smooth) * plain[between] / 8 + smooth * plain[between]
    np.testing.assert_allclose(scaled[between], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((5,), "`head_dim` must be even.*head_dim=5"),
        ((4, 0.0), "`theta` must be positive.*theta=0.0"),
        ((4, 10.0, {"type": "yarn"}), "`scaling` must have a type of.*yarn"),
        ((4, 10.0, {"type": "linear"}), "needs a positive 'factor'"),
        (
            (4, 10.0, LLAMA3 | {"low_freq_factor": 4.0}),
            "`low_freq_factor` must be below",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(*arguments)


def test_rotation_turns_pairs_of_channels():
    # As complex numbers, channel i and channel i + C / 2 are one number.
    rng = np.random.default_rng(0)
    x = normal(rng, 2, 3, 2, 6)
    positions = np.array([[0, 1, 2], [5, 9, 700]])
    layer = RotaryEmbedding(6, theta=100.0)
    turned = numpy(rotate(keras.ops.convert_to_tensor(x), layer(positions)))
    frequencies = 100.0 ** (-np.arange(3) / 3)
    angles = positions[:, :, None, None] * frequencies
    number = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angles)
    np.testing.assert_allclose(turned[..., :3], number.real, atol=2e-4)
    np.testing.assert_allclose(turned[..., 3:], number.imag, atol=2e-4)


def test_attention_depends_on_differences_of_positions_alone():
    rng = np.random.default_rng(1)
    state, log_precision = normal(rng, 2, 5, 8), normal(rng, 2, 5, 8)
    attention = BFTAttention(2, causal=True)
    attention.build((2, 5, 8))
    randomize(attention)
    rotary = RotaryEmbedding(4)
    positions = np.tile(np.arange(5), (2, 1))

    def observe(positions):
        return arrays(
            attention(state, log_precision, rotation=rotary(positions))
        )

    first, moved, other = map(
        observe, (positions, positions + 7, positions * 2)
    )
    for a, b in zip(first, moved, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert np.abs(first[0] - other[0]).max() > 1e-3
    assert np.abs(first[0] - arrays(attention(state, log_precision))[0]).max()


def test_the_layer_passes_the_rotation_on_in_a_functional_model():
    rng = np.random.default_rng(2)
    x, positions = normal(rng, 2, 5, 8), np.tile(np.arange(5), (2, 1))
    layer, rotary = BFTLayer(2, 16, causal=True), RotaryEmbedding(4)
    state = keras.Input((5, 8))
    index = keras.Input((5,), dtype="int32")
    model = keras.Model([state, index], layer(state, rotation=rotary(index)))
    np.testing.assert_allclose(
        numpy(model([x, positions])),
        numpy(layer(x, rotation=rotary(positions))),
        atol=1e-6,
    )
    restored = RotaryEmbedding.from_config(
        RotaryEmbedding(4, 50.0, LLAMA3).get_config()
    )
    np.testing.assert_array_equal(
        restored.frequencies, rotary_frequencies(4, 50.0, LLAMA3)
    )
