"""Arguments, saving, dtypes, masks and training of the layer."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTHSTULayer
from keras_bft.layers._trace import listening
from tests.layers.filter_checks import check_drop_in_training
from tests.layers.filter_checks import check_pair_training
from tests.layers.layer_checks import MaskProbe
from tests.layers.layer_checks import arrays
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import normal
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients
from tests.layers.layer_checks import weighted_sum

B, T, D = 2, 4, 8
FORMS = ("light", "full")
each_form = pytest.mark.parametrize("form", FORMS)
IDS = np.array([[1, 2, 0, 3], [3, 4, 0, 0]], "int32")
TIMES = np.array([[0, 7, 7, 90], [3, 3, 5, 86400]], "int32")


def make(**options):
    return BFTHSTULayer(2, T, **options)


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


ARGUMENTS = {
    "num_heads": 4,
    "max_length": 9,
    "head_dim": 3,
    "num_time_buckets": 5,
    "causal": False,
    "form": "full",
    "variance": "head",
    "differentiate_statistics": False,
    "precision": "token",
    "carry_units": False,
    "strength": 0.5,
    "trainable_strength": True,
    "initial_log_process_noise": None,
    "trainable_process_noise": False,
    "activation": "gelu",
    "epsilon": 1e-4,
    "dropout": 0.25,
    "kernel_initializer": keras.initializers.HeNormal(),
    "bayesian": False,
    "seed": 4,
}


def test_config():
    layer = check_config(BFTHSTULayer, **ARGUMENTS)
    attention = layer.attention
    for name in (
        "num_heads",
        "max_length",
        "head_dim",
        "causal",
        "variance",
        "differentiate_statistics",
        "precision",
        "carry_units",
        "epsilon",
    ):
        assert getattr(attention, name) == ARGUMENTS[name], name
    assert attention.activation is keras.activations.gelu
    assert type(attention.kernel_initializer) is keras.initializers.HeNormal
    assert attention.relative_bias.num_time_buckets == 5
    assert attention.relative_bias.causal is False
    assert attention.output_dropout.rate == 0.25
    assert attention.norm.epsilon == 1e-4


def test_forms_are_two_choices_and_each_can_be_made_alone():
    def chosen(**options):
        attention = make(**options).attention
        return attention.variance, attention.differentiate_statistics

    assert chosen() == chosen(form="light") == ("head", False)
    assert chosen(form="full") == ("channel", True)
    assert chosen(form="full", variance="head") == ("head", True)
    assert chosen(differentiate_statistics=True) == ("head", True)


def test_saving(tmp_path):
    check_saving(
        lambda: make(form="full", dropout=0.5, trainable_strength=True),
        [*inputs(), TIMES],
        tmp_path,
    )


@pytest.mark.parametrize("bayesian", [False, True])
def test_saving_in_the_drop_in_form(bayesian, tmp_path):
    check_saving(lambda: make(bayesian=bayesian), inputs()[:1], tmp_path)


@pytest.mark.parametrize("precision", ["channel", "token"])
@pytest.mark.parametrize("width", [D, 1])
def test_output_spec(precision, width):
    check_output_spec(lambda: make(precision=precision), inputs(width))


@pytest.mark.parametrize("bayesian", [False, True])
def test_output_spec_of_a_state_alone(bayesian):
    check_output_spec(lambda: make(bayesian=bayesian), inputs()[:1])


def test_output_spec_with_everything_in_its_place():
    symbols = [
        keras.Input((None, D)),
        keras.Input((None, 1)),
        keras.Input((None,), dtype="int32"),
        keras.Input((None,), dtype="bool"),
        keras.Input((None, None), dtype="bool"),
    ]
    layer = make(causal=False)
    model = keras.Model(symbols, layer(*symbols))
    state, log_precision = inputs(1)
    padding, attention = IDS != 0, np.tril(np.ones((B, T, T), bool))
    outputs = arrays(model([state, log_precision, TIMES, padding, attention]))
    expected = arrays(
        layer(
            state,
            log_precision,
            timestamps=TIMES,
            padding_mask=padding,
            attention_mask=attention,
        )
    )
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@each_form
def test_policies(form):
    check_policies(
        lambda **kwargs: make(form=form, **kwargs), [*inputs(1), TIMES]
    )


def test_policies_of_the_standard_layer():
    check_policies(
        lambda **kwargs: make(bayesian=False, **kwargs), inputs()[:1]
    )


@each_form
def test_compiled(form):
    check_compiled(lambda: make(form=form), [*inputs(), TIMES])


def test_keras_masks_and_padding_masks_do_the_same():
    _, log_precision = inputs()
    symbol = keras.Input((T,), dtype="int32")
    its_log_precision = keras.Input((T, D))
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    first, second = make(causal=False), make(form="full")
    outputs = second(*first(embedding(symbol), its_log_precision))
    masks = [MaskProbe()(output) for output in outputs]
    model = keras.Model([symbol, its_log_precision], [*outputs, *masks])
    randomize(model)
    *masked, state_mask, precision_mask = arrays(model([IDS, log_precision]))
    np.testing.assert_array_equal(state_mask, (IDS != 0).astype(int))
    np.testing.assert_array_equal(precision_mask, (IDS != 0).astype(int))

    state = numpy(embedding(IDS)).astype("float32")
    padded = first(state, log_precision, padding_mask=IDS != 0)
    padded = arrays(second(*padded, padding_mask=IDS != 0))
    plain = arrays(second(*first(state, log_precision)))
    real = IDS != 0
    for x, y, z in zip(masked, padded, plain, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
        assert np.max(np.abs((x - z)[real])) > 1e-3


def test_state_alone_starts_at_a_ratio_of_one():
    state, _ = inputs()
    layer = make(form="full")
    start = -np.log(state.var(-1, keepdims=True))
    np.testing.assert_allclose(
        numpy(layer(state)), numpy(layer(state, start)[0]), atol=1e-5
    )


@each_form
def test_drop_in_form_trains_in_sequential(form):
    check_drop_in_training(
        make(form=form, dropout=0.1), make(form=form, bayesian=form == "full")
    )


@each_form
def test_pairs_train_in_a_functional_model(form):
    number = check_pair_training(
        lambda: make(form=form, trainable_strength=True), TIMES
    )
    assert number == 2 + 2 * 9


@each_form
def test_strength_gets_a_gradient_at_zero(form):
    state, log_precision = inputs(seed=2)
    layer = make(form=form, strength=0.0, trainable_strength=True)
    layer(state, log_precision)
    randomize(layer)
    layer.strength.assign(0.0)

    def total(strength=None):
        if strength is not None:
            layer.strength.assign(strength)
        return weighted_sum(layer(state, log_precision)[0])

    _, (gradient,) = variable_gradients(total, [layer.strength])
    step = 1e-3
    slope = (numpy(total(step)) - numpy(total(0.0))) / step
    assert abs(slope) > 0.1
    np.testing.assert_allclose(gradient, slope, rtol=5e-2)


@each_form
def test_only_the_full_form_differentiates_the_statistics(form):
    state, log_precision = inputs()
    layer = make(form=form)
    layer(state, log_precision)
    randomize(layer)
    dense = layer.attention.input_dense, layer.attention.output_dense
    _, gradients = variable_gradients(
        lambda: keras.ops.sum(layer(state, log_precision)[1]),
        [layer.attention.norm.gamma, *(x.kernel for x in dense)],
    )
    for gradient in gradients:
        assert np.any(gradient != 0) == (form == "full")


def test_what_learns():
    for options, shapes, names in (
        ({}, ((B, T, 1),), {"log_process_noise"}),
        ({}, (), set()),
        ({"trainable_process_noise": False}, ((B, T, 1),), set()),
        ({"trainable_strength": True}, (), {"strength"}),
        ({"bayesian": False}, (), set()),
    ):
        layer = make(**options)
        layer.build((B, T, D), *shapes)
        filters = {"log_process_noise", "strength"}
        assert {w.name for w in layer.trainable_weights} & filters == names
        present = {w.name for w in layer.weights} & filters
        assert present == (filters if layer.bayesian else set())


def test_dropout_has_an_effect_in_training_alone():
    state, log_precision = inputs()

    def outputs(dropout):
        keras.utils.set_random_seed(1)
        layer = make(dropout=dropout, seed=3)
        calls = [
            layer(state, log_precision, training=True)[0] for _ in range(2)
        ]
        return arrays([layer(state, log_precision)[0], *calls])

    none, *same = outputs(0.0)
    for x in same:
        np.testing.assert_array_equal(x, none)
    off, on, again = outputs(0.5)
    np.testing.assert_allclose(off, none, atol=1e-6)
    assert np.max(np.abs(on - none)) > 1e-2
    assert np.max(np.abs(on - again)) > 1e-2
    np.testing.assert_array_equal(outputs(0.5)[1], on)


def test_observation_and_prediction_are_reported():
    layer = make(precision="token")
    with listening() as records:
        outputs = arrays(layer(*inputs()))
        layer(inputs()[0])
    given, alone = [values for who, values in records if who is layer]
    assert tuple(given["observation_log_precision"].shape) == (B, T, 1)
    np.testing.assert_array_equal(numpy(given["log_precision"]), outputs[1])
    np.testing.assert_array_equal(
        numpy(given["log_process_noise"]), numpy(layer.log_process_noise)
    )
    # Nothing is predicted for a state alone.
    assert set(alone) == {"observation_log_precision"}


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_heads", 0),
        ("max_length", 0),
        ("head_dim", 0),
        ("num_time_buckets", -1),
        ("form", "heavy"),
        ("variance", "token"),
        ("differentiate_statistics", "no"),
        ("precision", "head"),
        ("strength", -1.0),
        ("activation", "softmax"),
        ("dropout", 1.0),
    ],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"num_heads": 2, "max_length": 6, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        BFTHSTULayer(**arguments)


def test_heads_that_do_not_divide_the_state_raise():
    with pytest.raises(ValueError, match="must divide.*Received: num_heads=3"):
        BFTHSTULayer(3, T).build((B, T, D))
