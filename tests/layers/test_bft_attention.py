import keras
import numpy as np
import pytest

from keras_bft.layers import BFTAttention
from keras_bft.layers._trace import listening
from keras_bft.ops import NO_OBSERVATION
from tests.layers.layer_checks import MaskProbe
from tests.layers.layer_checks import arrays
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
from tests.layers.reference_layer import observe
from tests.layers.reference_layer import weights

B, T, D = 2, 4, 8
PADDING = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
CAUSAL = np.tril(np.ones((T, T), bool))[None]
CASES = [
    {},
    {"variance": "channel", "causal": True},
    {"variance": "channel", "precision": "token", "normalization": "rms"},
    {"precision": "token", "key_precision": "per_head"},
    {"key_precision": "per_head", "variance": "channel", "carry_units": False},
    {"num_key_value_heads": 1, "variance": "channel", "strength": 0.5},
    {"num_key_value_heads": 2, "key_precision": "per_head", "head_dim": 3},
    {"normalization": None, "use_bias": False, "prior_dof": 3.0},
    {"carry_units": False, "causal": True, "epsilon": 1e-2},
]
each_case = pytest.mark.parametrize("options", CASES, ids=str)


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def built(**options):
    layer = BFTAttention(4, **options)
    layer(*inputs())
    randomize(layer)
    return layer


def test_config():
    check_config(
        BFTAttention,
        num_heads=4,
        head_dim=3,
        num_key_value_heads=2,
        causal=True,
        variance="channel",
        precision="token",
        key_precision="per_head",
        normalization="rms",
        epsilon=1e-4,
        carry_units=False,
        prior_dof=2.0,
        differentiate_statistics=True,
        dropout=0.25,
        dropout_mode="inverted",
        use_bias=False,
        kernel_initializer=keras.initializers.HeNormal(),
        strength=0.5,
        kriging_weights=False,
        bayesian=False,
        attention="dense",
        seed=4,
    )


def context_inputs(seed=1):
    """A longer and wider context and its log-precision."""
    rng = np.random.default_rng(seed)
    return [normal(rng, B, 5, 6), normal(rng, B, 5, 1)]


@pytest.mark.parametrize("extra", [[], context_inputs()], ids=["self", "cross"])
def test_saving(extra, tmp_path):
    check_saving(
        lambda: BFTAttention(2, dropout=0.5), inputs() + extra, tmp_path
    )


@pytest.mark.parametrize("precision", ["channel", "token"])
@pytest.mark.parametrize("width", [D, 1])
def test_output_spec(precision, width):
    check_output_spec(
        lambda: BFTAttention(2, precision=precision), inputs(width)
    )


def test_output_spec_of_cross_attention():
    check_output_spec(lambda: BFTAttention(2), inputs() + context_inputs())


@pytest.mark.parametrize("bayesian", [False, True])
def test_output_spec_of_a_state_alone(bayesian):
    check_output_spec(lambda: BFTAttention(2, bayesian=bayesian), inputs()[:1])


@pytest.mark.parametrize("variance", ["head", "channel"])
def test_policies(variance):
    check_policies(
        lambda **kwargs: BFTAttention(2, variance=variance, **kwargs), inputs()
    )


@pytest.mark.parametrize("extra", [[], context_inputs()], ids=["self", "cross"])
def test_compiled(extra):
    check_compiled(lambda: BFTAttention(2), inputs() + extra)


@each_case
def test_equals_the_reference(options):
    state, log_precision = inputs()
    layer = built(**options)
    visible = np.broadcast_to(PADDING[:, None], (B, T, T))
    if options.get("causal"):
        visible = visible & CAUSAL
    expected = observe(
        layer,
        state.astype("float64"),
        np.exp(log_precision.astype("float64")),
        visible,
        layer.strength,
    )
    innovation, observed = arrays(
        layer(state, log_precision, padding_mask=PADDING)
    )
    np.testing.assert_allclose(innovation, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        observed, np.log(expected[1]), rtol=1e-5, atol=2e-5
    )


@each_case
def test_uniform_precision_gives_softmax_weights_at_any_strength(options):
    state, _ = inputs()
    layer = built(**{**options, "strength": 2.5})
    plain = BFTAttention(4, **{**options, "bayesian": False})
    plain.build(state.shape)
    assert copy_weights(layer, plain) == set()
    expected = numpy(plain(state, padding_mask=PADDING))
    uniform = np.full((B, T, 1), 3.25, "float32")
    innovation, _ = layer(state, uniform, padding_mask=PADDING)
    np.testing.assert_allclose(numpy(innovation), expected, atol=1e-5)
    other = inputs()[1]
    innovation, _ = layer(state, other, padding_mask=PADDING)
    assert np.max(np.abs(numpy(innovation) - expected)) > 1e-2
    innovation, _ = layer(
        state, other, padding_mask=PADDING, strength=np.float32(0.0)
    )
    np.testing.assert_allclose(numpy(innovation), expected, atol=1e-5)


@pytest.mark.parametrize("variance", ["head", "channel"])
@pytest.mark.parametrize("normalization", ["layer", "rms", None])
def test_one_visible_key_is_observed_at_the_precision_of_its_value(
    variance, normalization
):
    state, log_precision = inputs()
    layer = built(variance=variance, normalization=normalization)
    _, observed = layer(
        state, log_precision, attention_mask=np.eye(T, dtype=bool)[None]
    )
    # Through the norm, the value kernel (per head) and the output kernel.
    x = state.astype("float64")
    gamma, spread = np.ones(D), np.ones((B, T))
    if normalization is not None:
        gamma = numpy(layer.norm.gamma)
        mean = x.mean(-1, keepdims=True) if normalization == "layer" else 0.0
        spread = np.sqrt(((x - mean) ** 2).mean(-1) + 1e-6)
    gain = (gamma[:, None] * numpy(layer.value_dense.kernel)) ** 2
    gain = gain.sum(0).reshape(4, 2).mean(-1)
    precision = np.exp(log_precision.astype("float64")).mean(-1)
    value_precision = (precision * spread**2)[..., None] / gain
    kernel = numpy(layer.output_dense.kernel).reshape(4, 2, D)
    variance_out = np.einsum("hcd,bth->btd", kernel**2, 1 / value_precision)
    np.testing.assert_allclose(
        numpy(observed), -np.log(variance_out), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("variance", ["head", "channel"])
@pytest.mark.parametrize("normalization", ["layer", "rms"])
def test_the_observation_has_no_unit(variance, normalization):
    state, log_precision = inputs()
    layer = built(variance=variance, normalization=normalization, epsilon=1e-12)
    before = arrays(layer(state, log_precision))
    for scale in (1e-3, 7.0, 1e3):
        scaled = log_precision - np.float32(2 * np.log(scale))
        after = arrays(layer(state * np.float32(scale), scaled))
        for x, y in zip(after, before, strict=True):
            np.testing.assert_allclose(x, y, atol=5e-5)


def test_precision_decides_which_keys_count():
    state, log_precision = inputs()
    layer = built()
    without, only = np.ones((B, T), bool), np.zeros((B, T), bool)
    without[:, 1], only[:, 1] = False, True
    for value, padding in ((-60.0, without), (60.0, only)):
        changed = log_precision.copy()
        changed[:, 1] = value
        np.testing.assert_allclose(
            numpy(layer(state, changed)[0]),
            numpy(layer(state, changed, padding_mask=padding)[0]),
            atol=1e-5,
        )


@pytest.mark.parametrize(
    "options",
    [{}, {"variance": "channel", "key_precision": "per_head"}],
    ids=str,
)
def test_without_kriging_weights_softmax_weights_observe(options):
    state, log_precision = inputs()
    layer = built(kriging_weights=False, **options)
    plain = BFTAttention(4, bayesian=False)
    plain.build(state.shape)
    copy_weights(layer, plain)
    with listening() as records:
        innovation, observed = arrays(
            layer(state, log_precision, padding_mask=PADDING)
        )
        alone = numpy(layer(state, padding_mask=PADDING))
    expected = numpy(plain(state, padding_mask=PADDING))
    np.testing.assert_allclose(innovation, expected, atol=1e-6)
    np.testing.assert_allclose(alone, expected, atol=1e-6)

    # The weights of that softmax, and the reference's statistics of them,
    # which read the precision of the keys at strength zero too.
    x, _, _ = normalize(layer.norm, state.astype("float64"))
    query, key = (
        (x @ kernel + bias).reshape(B, T, 4, 2)
        for kernel, bias in map(weights, (layer.query_dense, layer.key_dense))
    )
    logits = np.einsum("bthc,bshc->bhts", query, key) / np.sqrt(2)
    expected = np.exp(logits) * PADDING[:, None, None]
    expected /= expected.sum(-1, keepdims=True)
    for _, values in records:
        np.testing.assert_allclose(
            numpy(values["kriging_weights"]), expected, atol=1e-6
        )
    visible = np.broadcast_to(PADDING[:, None], (B, T, T))
    precision = np.exp(log_precision.astype("float64"))
    _, expected = observe(
        layer, state.astype("float64"), precision, visible, 0.0
    )
    np.testing.assert_allclose(observed, np.log(expected), atol=2e-5)
    other = numpy(layer(state, log_precision + 1.0, padding_mask=PADDING)[1])
    assert np.all(other > observed)


def test_key_of_no_precision_is_not_seen():
    state, log_precision = inputs()
    layer = built()
    log_precision[:, 1] = -np.inf
    padding = np.ones((B, T), bool)
    padding[:, 1] = False
    outputs = arrays(layer(state, log_precision))
    finite = np.where(np.isinf(log_precision), 0.0, log_precision)
    expected = arrays(layer(state, finite, padding_mask=padding))
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize(
    "variance, differentiate", [("head", False), ("channel", True)]
)
def test_a_query_without_keys_makes_no_observation(variance, differentiate):
    state, log_precision = inputs()
    layer = built(variance=variance, differentiate_statistics=differentiate)
    padding = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool)
    innovation, observed = arrays(
        layer(state, log_precision, padding_mask=padding)
    )
    bias = numpy(layer.output_dense.bias)
    np.testing.assert_allclose(innovation[1], np.broadcast_to(bias, (T, D)))
    assert np.all(observed[1] < 0.9 * NO_OBSERVATION)
    assert np.all(observed[0] > -50.0)

    leaves = [keras.Variable(state), keras.Variable(log_precision)]

    def total():
        outputs = layer(leaves[0].value, leaves[1].value, padding_mask=padding)
        # Of a missing observation the gain is used, not the log-precision.
        return keras.ops.sum(outputs[0]) + keras.ops.sum(
            keras.ops.sigmoid(outputs[1])
        )

    _, gradients = variable_gradients(total, leaves + layer.trainable_variables)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
    assert np.any(gradients[0][0] != 0)
    assert np.all(gradients[0][1] == 0)


def test_cross_attention_sees_the_context_alone():
    state, log_precision = inputs()
    rng = np.random.default_rng(3)
    context, its_log_precision = normal(rng, B, 5, D), normal(rng, B, 5, D)
    layer = built(normalization=None, variance="channel")
    outputs = arrays(layer(state, log_precision, context, its_log_precision))
    # Self-attention over both, in which queries see the context alone.
    both = np.concatenate([state, context], 1)
    both_log_precision = np.concatenate([log_precision, its_log_precision], 1)
    visible = np.arange(T + 5) >= T
    expected = arrays(
        layer(
            both,
            both_log_precision,
            attention_mask=np.broadcast_to(visible, (B, T + 5, T + 5)),
        )
    )
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y[:, :T], atol=1e-5)


def test_cross_attention_reads_the_masks_of_the_context():
    state, log_precision = inputs()
    context, its_log_precision = context_inputs()
    layer = BFTAttention(2)
    padding = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 1]], bool)
    masked = arrays(
        layer(
            state,
            log_precision,
            context,
            its_log_precision,
            padding_mask=padding,
        )
    )
    symbols = [keras.Input(x.shape[1:]) for x in (state, log_precision)]
    symbols += [keras.Input(x.shape[1:]) for x in context_inputs()]
    # Masking takes steps of zeros for padding.
    masking = keras.layers.Masking()(symbols[2])
    model = keras.Model(
        symbols, layer(symbols[0], symbols[1], masking, symbols[3])
    )
    zeroed = context * padding[..., None]
    kept = arrays(model([state, log_precision, zeroed, its_log_precision]))
    for x, y in zip(kept, masked, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_context_without_log_precision_starts_at_a_ratio_of_one():
    state, log_precision = inputs()
    context, _ = context_inputs()
    layer = BFTAttention(2)
    start = -np.log(context.var(-1, keepdims=True))
    given = arrays(layer(state, log_precision, context, start))
    default = arrays(layer(state, log_precision, context))
    for x, y in zip(default, given, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_state_alone_starts_at_a_ratio_of_one():
    state, _ = inputs()
    layer = built()
    start = -np.log(state.var(-1, keepdims=True))
    np.testing.assert_allclose(
        numpy(layer(state)), numpy(layer(state, start)[0]), atol=1e-5
    )


def test_keras_masks_and_padding_masks_do_the_same():
    ids = np.array([[1, 2, 0, 3], [3, 0, 0, 0]], "int32")
    _, log_precision = inputs()
    symbol, its_log_precision = (
        keras.Input((T,), dtype="int32"),
        keras.Input((T, D)),
    )
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    layer = BFTAttention(2)
    outputs = layer(embedding(symbol), its_log_precision)
    masks = [MaskProbe()(output) for output in outputs]
    model = keras.Model([symbol, its_log_precision], [*outputs, *masks])
    *masked, first, second = arrays(model([ids, log_precision]))
    np.testing.assert_array_equal(first, (ids != 0).astype(int))
    np.testing.assert_array_equal(second, (ids != 0).astype(int))
    state = numpy(embedding(ids)).astype("float32")
    padded = arrays(layer(state, log_precision, padding_mask=ids != 0))
    plain = arrays(layer(state, log_precision))
    for x, y, z in zip(masked, padded, plain, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
        assert np.max(np.abs(x - z)) > 1e-3
    # Called eagerly on the state alone, the mask comes as `mask`.
    np.testing.assert_allclose(
        numpy(layer(embedding(ids))),
        numpy(layer(state, padding_mask=ids != 0)),
        atol=1e-6,
    )


@pytest.mark.parametrize("mode", ["renormalized", "inverted"])
def test_dropped_keys_are_missing_or_noise(mode):
    state, log_precision = inputs()
    layer = built(dropout=0.5, dropout_mode=mode, seed=3)
    innovation, observed = arrays(layer(state, log_precision))
    noisy, noisy_observed = arrays(layer(state, log_precision, training=True))
    assert np.max(np.abs(noisy - innovation)) > 1e-2
    changed = np.max(np.abs(noisy_observed - observed))
    assert (changed > 1e-2) == (mode == "renormalized")


@pytest.mark.parametrize(
    "options",
    [
        {"dropout_mode": "renormalized", "causal": True},
        {"dropout_mode": "inverted", "differentiate_statistics": True},
        {"dropout_mode": "inverted", "bayesian": False, "causal": True},
    ],
    ids=str,
)
def test_blocks_and_whole_weights_give_the_same(options):
    state, log_precision = inputs()
    mask = np.ones((len(state), T), bool)
    mask[0, -1] = mask[-1, 0] = False
    outputs = []
    for attention in ("blockwise", "dense", "auto"):
        layer = built(dropout=0.5, seed=3, attention=attention, **options)
        outputs.append(
            [
                x
                for training in (False, True)
                for x in keras.tree.flatten(
                    layer(
                        state,
                        log_precision,
                        padding_mask=mask,
                        training=training,
                    )
                )
            ]
        )
    for wanted, *others in zip(*outputs, strict=True):
        for x in others:
            np.testing.assert_allclose(
                numpy(x), numpy(wanted), rtol=1e-4, atol=1e-5
            )


def test_renormalized_dropout_of_the_only_key_makes_no_observation():
    state, log_precision = inputs()
    layer = BFTAttention(1, dropout=0.5, seed=3)
    _, observed = layer(
        state,
        log_precision,
        attention_mask=np.eye(T, dtype=bool)[None],
        training=True,
    )
    missing = numpy(observed) < 0.9 * NO_OBSERVATION
    np.testing.assert_array_equal(missing.all(-1), missing.any(-1))
    assert 0 < missing.mean() < 1


def test_no_key_counts_twice_in_the_statistics_of_grouped_queries():
    # Grouped queries equal as many key heads that hold the same numbers.
    state, log_precision = inputs()
    grouped = built(num_key_value_heads=2, variance="channel")
    full = built(variance="channel")
    for name in ("query_dense", "output_dense", "norm"):
        getattr(full, name).set_weights(getattr(grouped, name).get_weights())
    for name in ("key_dense", "value_dense"):
        kernel, bias = getattr(grouped, name).get_weights()
        kernel = kernel.reshape(D, 2, 2).repeat(2, axis=1).reshape(D, D)
        bias = bias.reshape(2, 2).repeat(2, axis=0).reshape(D)
        getattr(full, name).set_weights([kernel, bias])
    for x, y in zip(
        arrays(grouped(state, log_precision)),
        arrays(full(state, log_precision)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("differentiate", [False, True])
def test_gradient_through_the_observation_only_if_asked_for(differentiate):
    state, log_precision = inputs()
    layer = built(differentiate_statistics=differentiate)
    leaf = keras.Variable(log_precision)
    variables = [
        layer.value_dense.kernel,
        layer.output_dense.kernel,
        layer.query_dense.kernel,
        leaf,
    ]
    _, gradients = variable_gradients(
        lambda: keras.ops.sum(layer(state, leaf.value)[1]), variables
    )
    for gradient in gradients:
        assert np.any(gradient != 0) == differentiate
    _, gradients = variable_gradients(
        lambda: keras.ops.sum(layer(state, leaf.value)[0]), variables
    )
    for gradient in gradients:
        assert np.any(gradient != 0)


def test_log_precision_of_any_dtype_gives_the_same():
    state, log_precision = inputs()
    layer = built()
    expected = arrays(layer(state, log_precision))
    outputs = layer(state.astype("float64"), log_precision.astype("float64"))
    assert "float32" in str(outputs[1].dtype)
    for x, y in zip(arrays(outputs), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_heads", 0),
        ("num_heads", 1.0),
        ("head_dim", 0),
        ("num_key_value_heads", 0),
        ("num_key_value_heads", 3),
        ("variance", "token"),
        ("precision", "head"),
        ("key_precision", "all"),
        ("normalization", "batch"),
        ("dropout", 1.5),
        ("strength", -0.5),
        ("prior_dof", 0.0),
    ],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"num_heads": 4, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        BFTAttention(**arguments)


def test_wrong_dropout_mode_raises():
    with pytest.raises(ValueError, match="Received: mode='none'"):
        BFTAttention(4, dropout_mode="none")


def test_heads_that_do_not_divide_the_width_raise():
    with pytest.raises(ValueError, match="Received: num_heads=3"):
        BFTAttention(3)(inputs()[0])
    BFTAttention(3, head_dim=2)(inputs()[0])


def test_causal_attention_to_a_context_raises():
    with pytest.raises(ValueError, match="Received: context of shape"):
        BFTAttention(2, causal=True)(*inputs(), *context_inputs())
