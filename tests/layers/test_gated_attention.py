import keras
import numpy as np
import pytest

from keras_bft.layers import BFTAttention
from keras_bft.layers import GatedAttention
from keras_bft.layers._trace import listening
from tests.layers.layer_checks import MaskProbe
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import copy_weights
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.reference_layer import normalize
from tests.layers.reference_layer import weights

B, T, D = 2, 4, 8
PADDING = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
CAUSAL = np.tril(np.ones((T, T), bool))[None]
GATES = ("elementwise", "headwise")
each_gate = pytest.mark.parametrize("gate", GATES)


def inputs(seed=0):
    return normal(np.random.default_rng(seed), B, T, D)


def built(**options):
    layer = GatedAttention(4, **options)
    layer.build((B, T, D))
    randomize(layer)
    return layer


def test_config():
    check_config(
        GatedAttention,
        num_heads=4,
        gate="headwise",
        head_dim=3,
        num_key_value_heads=2,
        causal=True,
        normalization="rms",
        epsilon=1e-4,
        dropout=0.25,
        dropout_mode="inverted",
        use_bias=False,
        kernel_initializer=keras.initializers.HeNormal(),
        from_one=True,
        attention="dense",
        seed=4,
    )


@each_gate
def test_saving(gate, tmp_path):
    check_saving(
        lambda: GatedAttention(2, gate, dropout=0.5), [inputs()], tmp_path
    )


def test_output_spec():
    check_output_spec(lambda: GatedAttention(2, head_dim=3), [inputs()])


@each_gate
def test_policies(gate):
    check_policies(
        lambda **kwargs: GatedAttention(2, gate, **kwargs), [inputs()]
    )


@each_gate
def test_compiled(gate):
    check_compiled(lambda: GatedAttention(2, gate, causal=True), [inputs()])


@each_gate
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True, "normalization": "rms", "num_key_value_heads": 2},
        {"normalization": None, "use_bias": False, "head_dim": 3},
    ],
    ids=str,
)
def test_equals_numpy(gate, options):
    state = inputs()
    layer = built(gate=gate, **options)
    x = state.astype("float64")
    if layer.normalization is not None:
        x, _, _ = normalize(layer.norm, x)

    def heads(dense, number):
        kernel, bias = weights(dense)
        return (x @ kernel + bias).reshape(B, T, number, -1)

    number = layer.num_key_value_heads or 4
    query = heads(layer.query_dense, 4)
    key, value = (
        heads(dense, number).repeat(4 // number, axis=2)
        for dense in (layer.key_dense, layer.value_dense)
    )
    visible = PADDING[:, None, :] & (CAUSAL if layer.causal else True)
    logits = np.einsum("bthc,bshc->bhts", query, key)
    alpha = np.exp(logits / np.sqrt(query.shape[-1])) * visible[:, None]
    alpha /= alpha.sum(-1, keepdims=True)
    attended = np.einsum("bhts,bshc->bthc", alpha, value)
    gates = 1.0 / (1.0 + np.exp(-heads(layer.gate_dense, 4)))
    assert gates.shape[-1] == (query.shape[-1] if gate == GATES[0] else 1)
    kernel, bias = weights(layer.output_dense)
    expected = (attended * gates).reshape(B, T, -1) @ kernel + bias

    with listening() as records:
        outputs = layer(state, padding_mask=PADDING)
    np.testing.assert_allclose(numpy(outputs), expected, rtol=1e-5, atol=1e-5)
    ((reporter, values),) = records
    assert reporter is layer
    assert set(values) == {"gate", "attention_weights"}
    np.testing.assert_allclose(
        numpy(values["attention_weights"]), alpha, atol=1e-6
    )
    np.testing.assert_allclose(numpy(values["gate"]), gates, atol=1e-6)


@each_gate
def test_an_open_gate_leaves_plain_attention(gate):
    state = inputs()
    layer = built(gate=gate)
    plain = BFTAttention(4, bayesian=False)
    plain.build((B, T, D))
    assert copy_weights(layer, plain) == {"gate/kernel", "gate/bias"}
    expected = numpy(plain(state, padding_mask=PADDING))
    before = numpy(layer(state, padding_mask=PADDING))
    assert np.max(np.abs(before - expected)) > 1e-2
    bias = layer.gate_dense.bias
    bias.assign(np.full(bias.shape, 100.0))
    opened = numpy(layer(state, padding_mask=PADDING))
    np.testing.assert_allclose(opened, expected, atol=1e-6)


@each_gate
def test_the_future_changes_nothing_earlier(gate):
    state, changed = inputs(), inputs()
    changed[:, 2:] = 5.0 * inputs(seed=1)[:, 2:]
    options = {"gate": gate, "causal": True, "dropout": 0.5, "seed": 3}
    for training in (False, True):
        # A fresh layer draws the same dropout again.
        first, second = (
            numpy(built(**options)(x, training=training))
            for x in (state, changed)
        )
        np.testing.assert_allclose(first[:, :2], second[:, :2], atol=1e-5)
        assert np.all(np.max(np.abs(first - second)[:, 2:], axis=-1) > 1e-3)


def test_padding_changes_nothing_real():
    state, changed = inputs(), inputs()
    changed[~PADDING] = 50.0
    layer = built()
    first, second = (
        numpy(layer(x, padding_mask=PADDING)) for x in (state, changed)
    )
    np.testing.assert_allclose(first[PADDING], second[PADDING], atol=1e-5)
    mask = np.broadcast_to(PADDING[:, None], (B, T, T))
    np.testing.assert_allclose(
        numpy(layer(state, attention_mask=mask)), first, atol=1e-6
    )


def test_keras_masks_and_padding_masks_do_the_same():
    ids = np.array([[1, 2, 0, 3], [3, 0, 0, 0]], "int32")
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    layer = GatedAttention(2)
    model = keras.Sequential([embedding, layer, MaskProbe()])
    np.testing.assert_array_equal(numpy(model(ids)), (ids != 0).astype(int))
    state = numpy(embedding(ids)).astype("float32")
    expected = numpy(layer(state, padding_mask=ids != 0))
    assert np.max(np.abs(numpy(layer(state)) - expected)) > 1e-4
    np.testing.assert_allclose(
        numpy(layer(embedding(ids))), expected, atol=1e-6
    )
    # With a second tensor the Keras mask comes as `state_mask`.
    every = np.ones((B, T, T), bool)
    outputs = layer(embedding(ids), attention_mask=every)
    np.testing.assert_allclose(numpy(outputs), expected, atol=1e-6)


def test_rows_of_padding_are_finite():
    layer = built(dropout=0.5)
    padding = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool)
    leaf = keras.Variable(inputs())
    bias = numpy(layer.output_dense.bias)
    np.testing.assert_allclose(
        numpy(layer(leaf.value, padding_mask=padding))[1],
        np.broadcast_to(bias, (T, D)),
    )

    def total():
        outputs = layer(leaf.value, padding_mask=padding, training=True)
        return keras.ops.sum(outputs)

    _, gradients = variable_gradients(total, [leaf, *layer.trainable_variables])
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
    assert np.any(gradients[0][0] != 0)
    assert np.all(gradients[0][1] == 0)
    for weight, gradient in zip(
        layer.trainable_variables, gradients[1:], strict=True
    ):
        # Softmax ignores the biases of keys.
        if not weight.path.endswith("key/bias"):
            assert np.any(gradient != 0), weight.path


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_heads", 0),
        ("gate", "none"),
        ("head_dim", 0),
        ("num_key_value_heads", 3),
        ("normalization", "batch"),
        ("dropout", 1.5),
    ],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"num_heads": 4, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        GatedAttention(**arguments)


def test_heads_that_do_not_divide_the_width_raise():
    with pytest.raises(ValueError, match="Received: num_heads=3"):
        GatedAttention(3)(inputs())


@each_gate
def test_a_gate_from_one_starts_as_plain_attention(gate):
    layer = GatedAttention(4, gate, from_one=True)
    plain = BFTAttention(4, bayesian=False)
    for attention in (layer, plain):
        attention.build((B, T, D))
    copied = [weight for weight in layer.weights if "/gate/" not in weight.path]
    for weight, own in zip(plain.weights, copied, strict=True):
        weight.assign(numpy(own.value))
    want = numpy(plain(inputs()))
    np.testing.assert_allclose(numpy(layer(inputs())), want, atol=1e-6)
    randomize(layer.gate_dense)
    with listening() as records:
        layer(inputs())
    gates = numpy(records[0][1]["gate"])
    logits = numpy(layer.gate_dense(layer.norm(inputs())[0]))
    np.testing.assert_allclose(
        gates.reshape(logits.shape), 2.0 / (1.0 + np.exp(-logits)), atol=1e-5
    )
