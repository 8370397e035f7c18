import keras
import numpy as np
import pytest

from keras_bft.layers import PrecisionFeedForward
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
from tests.layers.reference_layer import predict

B, T, D = 2, 3, 4
CASES = [
    {},
    {"gated": True, "activation": "silu", "normalization": "rms"},
    {"jacobian": "diagonal"},
    {
        "jacobian": "diagonal",
        "gated": True,
        "normalization": "rms",
        "precision": "token",
    },
    {"jacobian": "diagonal", "normalization": None, "activation": "relu"},
    {"jacobian": "mean", "normalization": None, "gated": True},
    {"jacobian": None, "precision": "token", "use_bias": False},
    {"initial_log_process_noise": None, "jacobian": "diagonal"},
]
each_case = pytest.mark.parametrize("options", CASES, ids=str)


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def built(**options):
    layer = PrecisionFeedForward(6, **options)
    layer(*inputs(1 if options.get("precision") == "token" else D))
    randomize(layer)
    return layer


def test_config():
    check_config(
        PrecisionFeedForward,
        hidden_dim=6,
        activation="relu",
        gated=True,
        jacobian="diagonal",
        precision="token",
        initial_log_process_noise=-1.0,
        trainable_process_noise=False,
        normalization="rms",
        epsilon=1e-4,
        differentiate_statistics=True,
        dropout=0.25,
        use_bias=False,
        kernel_initializer=keras.initializers.HeNormal(),
        bayesian=False,
        seed=4,
    )


@pytest.mark.parametrize("gated", [False, True])
def test_saving(gated, tmp_path):
    check_saving(
        lambda: PrecisionFeedForward(6, gated=gated), inputs(), tmp_path
    )


@pytest.mark.parametrize("precision", ["channel", "token"])
@pytest.mark.parametrize("width", [D, 1])
def test_output_spec(precision, width):
    check_output_spec(
        lambda: PrecisionFeedForward(6, precision=precision), inputs(width)
    )


@pytest.mark.parametrize("bayesian", [False, True])
def test_output_spec_of_a_state_alone(bayesian):
    check_output_spec(
        lambda: PrecisionFeedForward(6, bayesian=bayesian), inputs()[:1]
    )


@pytest.mark.parametrize("options", CASES[:4], ids=str)
def test_policies(options):
    width = 1 if options.get("precision") == "token" else D
    check_policies(
        lambda **kwargs: PrecisionFeedForward(6, **options, **kwargs),
        inputs(width),
    )


def test_process_noise_is_not_rounded_to_the_compute_dtype():
    layer = PrecisionFeedForward(
        6, initial_log_process_noise=-2.1234567, dtype="mixed_bfloat16"
    )
    state, _ = inputs()
    _, log_precision = layer(state, np.full((B, T, 1), 60.0, "float32"))
    np.testing.assert_allclose(numpy(log_precision), 2.1234567, rtol=1e-6)


@pytest.mark.parametrize("gated", [False, True])
def test_compiled(gated):
    check_compiled(lambda: PrecisionFeedForward(6, gated=gated), inputs())


@each_case
def test_equals_the_reference(options):
    token = options.get("precision") == "token"
    state, log_precision = inputs(1 if token else D)
    layer = built(**options)
    expected = predict(
        layer,
        state.astype("float64"),
        np.exp(log_precision.astype("float64")),
    )
    actual, actual_log_precision = arrays(layer(state, log_precision))
    np.testing.assert_allclose(actual, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        actual_log_precision, np.log(expected[1]), rtol=1e-5, atol=1e-5
    )


@each_case
def test_the_state_does_not_depend_on_the_filter(options):
    token = options.get("precision") == "token"
    state, log_precision = inputs(1 if token else D)
    layer = built(**options)
    plain = PrecisionFeedForward(6, **{**options, "bayesian": False})
    plain.build(state.shape)
    filtered = options.get("initial_log_process_noise", -2.0) is not None
    assert copy_weights(layer, plain) == (
        {"log_process_noise"} if filtered else set()
    )
    expected = numpy(layer(state, log_precision)[0])
    np.testing.assert_allclose(numpy(layer(state)), expected, rtol=1e-6)
    for outputs in (plain(state), plain(state, log_precision)):
        np.testing.assert_allclose(numpy(outputs), expected, rtol=1e-6)


def test_a_larger_process_noise_only_lowers_the_precision():
    state, log_precision = inputs()
    previous = np.inf
    for noise in (None, -4.0, -2.0, 0.0, 2.0):
        layer = PrecisionFeedForward(
            6, initial_log_process_noise=noise, kernel_initializer="ones"
        )
        current = numpy(layer(state, log_precision)[1])
        assert np.all(current < previous)
        previous = current


@pytest.mark.parametrize("jacobian", ["mean", "diagonal"])
@pytest.mark.parametrize("differentiate", [False, True])
def test_gradient_through_the_jacobian_only_if_asked_for(
    jacobian, differentiate
):
    layer = built(jacobian=jacobian, differentiate_statistics=differentiate)
    _, (kernel, noise) = variable_gradients(
        lambda: keras.ops.sum(layer(*inputs())[1]),
        [layer.input_dense.kernel, layer.log_process_noise],
    )
    assert np.any(kernel != 0) == differentiate
    assert np.all(noise < 0)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("trainable", [False, True])
def test_process_noise_is_learned_only_where_it_is_read(given, trainable):
    layer = PrecisionFeedForward(6, trainable_process_noise=trainable)
    layer(*inputs()[: 1 + given])
    assert layer.log_process_noise.trainable == (given and trainable)


def test_dropout_drops_hidden_channels_and_outputs():
    state, log_precision = inputs()
    layer = PrecisionFeedForward(64, dropout=0.5, seed=2)
    layer.build(state.shape, log_precision.shape)
    update = numpy(layer(state, log_precision, training=True)[0]) - state
    assert 0 < np.mean(update == 0) < 1
    off = numpy(layer(state, log_precision)[0]) - state
    assert np.all(off != 0)
    # What survives the output dropout is not twice the undropped update,
    # since hidden channels are missing too.
    kept = update != 0
    assert np.all(np.abs(update[kept] / off[kept] - 2.0) > 1e-4)


def test_the_seed_decides_the_dropout():
    def outputs(seed):
        keras.utils.set_random_seed(1)
        layer = PrecisionFeedForward(6, dropout=0.5, seed=seed)
        return arrays(layer(*inputs(), training=True))[0]

    np.testing.assert_array_equal(outputs(3), outputs(3))
    assert np.any(outputs(3) != outputs(4))


def test_masks_pass_to_both_outputs_and_padding_changes_nothing():
    ids = np.array([[1, 2, 0], [3, 0, 0]], "int32")
    symbol = keras.Input((T,), dtype="int32")
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(symbol)
    log_precision = keras.Input((T, D))
    layer = PrecisionFeedForward(6)
    outputs = layer(embedded, log_precision)
    masks = [MaskProbe()(output) for output in outputs]
    for mask in keras.Model([symbol, log_precision], masks)([ids, inputs()[1]]):
        np.testing.assert_array_equal(numpy(mask), (ids != 0).astype(int))
    plain, padded = (
        arrays(layer(*inputs(), padding_mask=mask)) for mask in (None, ids != 0)
    )
    for x, y in zip(plain, padded, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "name, value",
    [
        ("hidden_dim", 0),
        ("jacobian", "full"),
        ("precision", "head"),
        ("normalization", "batch"),
        ("dropout", 1.0),
    ],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"hidden_dim": 6, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        PrecisionFeedForward(**arguments)


def test_unknown_width_raises():
    with pytest.raises(ValueError, match="Received: shape="):
        PrecisionFeedForward(6, normalization=None).build((None, None, None))
