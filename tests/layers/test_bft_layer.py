"""Arguments, saving, dtypes, masks and training of the layer."""

import keras
import numpy as np
import pytest

from keras_bft.layers import BFTLayer
from keras_bft.layers import GatedAttention
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


def inputs(width=D, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, B, T, D), normal(rng, B, T, width)]


def test_config():
    check_config(
        BFTLayer,
        num_heads=4,
        feed_forward_dim=6,
        head_dim=3,
        num_key_value_heads=2,
        causal=True,
        form="full",
        variance="head",
        jacobian=None,
        differentiate_statistics=False,
        precision="token",
        key_precision="per_head",
        carry_units=False,
        strength=0.5,
        trainable_strength=True,
        initial_log_process_noise=None,
        trainable_process_noise=False,
        prior_dof=2.0,
        kriging_weights=False,
        kalman_gain=False,
        activation="silu",
        gated=True,
        normalize_first=False,
        normalization="rms",
        epsilon=1e-4,
        dropout=0.25,
        attention_dropout=0.5,
        dropout_mode="inverted",
        use_bias=False,
        attention_bias=True,
        kernel_initializer=keras.initializers.HeNormal(),
        bayesian=False,
        gated_attention=True,
        attention="dense",
        seed=4,
    )


def test_arguments_reach_the_parts():
    layer = BFTLayer(
        4,
        6,
        head_dim=3,
        num_key_value_heads=2,
        causal=True,
        precision="token",
        key_precision="per_head",
        carry_units=False,
        initial_log_process_noise=-1.0,
        trainable_process_noise=False,
        prior_dof=2.0,
        kriging_weights=False,
        activation="silu",
        gated=True,
        normalization="rms",
        epsilon=1e-4,
        dropout=0.25,
        attention_dropout=0.5,
        dropout_mode="inverted",
        use_bias=False,
        attention_bias=True,
        kernel_initializer="he_normal",
        bayesian=False,
        seed=4,
    )
    expected = {
        "attention": {
            "num_heads": 4,
            "head_dim": 3,
            "num_key_value_heads": 2,
            "causal": True,
            "precision": "token",
            "key_precision": "per_head",
            "carry_units": False,
            "prior_dof": 2.0,
            "kriging_weights": False,
            "normalization": "rms",
            "epsilon": 1e-4,
            "dropout": 0.5,
            "dropout_mode": "inverted",
            "use_bias": True,
            "bayesian": False,
        },
        "feed_forward": {
            "hidden_dim": 6,
            "precision": "token",
            "initial_log_process_noise": -1.0,
            "trainable_process_noise": False,
            "activation": "silu",
            "gated": True,
            "normalization": "rms",
            "epsilon": 1e-4,
            "dropout": 0.25,
            "use_bias": False,
            "bayesian": False,
        },
    }
    seeds = {layer.attention.seed, layer.feed_forward.seed}
    assert None not in seeds and len(seeds) == 2
    for part, options in expected.items():
        config = getattr(layer, part).get_config()
        assert {name: config[name] for name in options} == options
        assert config["kernel_initializer"]["class_name"] == "HeNormal"


def test_gated_attention_takes_the_place_of_the_other():
    options = {
        "head_dim": 3,
        "num_key_value_heads": 2,
        "causal": True,
        "normalization": "rms",
        "epsilon": 1e-4,
        "dropout_mode": "inverted",
        "use_bias": False,
        "seed": 4,
    }
    layer = BFTLayer(
        4,
        6,
        dropout=0.25,
        kernel_initializer="he_normal",
        bayesian=False,
        gated_attention=True,
        **options,
    )
    assert type(layer.attention) is GatedAttention
    config = layer.attention.get_config()
    options = {**options, "num_heads": 4, "dropout": 0.25}
    assert {name: config[name] for name in options} == options
    assert config["kernel_initializer"]["class_name"] == "HeNormal"
    post_norm = BFTLayer(
        4, 6, normalize_first=False, bayesian=False, gated_attention=True
    )
    assert post_norm.attention.normalization is None


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("gated_attention", [True, False])
def test_weights_have_the_names_that_files_know(use_bias, gated_attention):
    layer = BFTLayer(
        2,
        6,
        gated=True,
        use_bias=use_bias,
        bayesian=False,
        gated_attention=gated_attention,
    )
    layer.build((B, T, D))
    dense = {"attention": ["query", "key", "value", "output"]}
    dense["feed_forward"] = ["input", "up", "output"]
    if gated_attention:
        dense["attention"].append("gate")
    expected = {
        f"{part}/{name}/{weight}"
        for part, names in dense.items()
        for name in names
        for weight in (["kernel", "bias"] if use_bias else ["kernel"])
    }
    expected |= {f"{part}/norm/gamma" for part in dense}
    expected |= {f"{part}/norm/beta" for part in dense}
    assert {w.path.split("/", 1)[1] for w in layer.weights} == expected


def statistics(layer):
    return (
        layer.attention.variance,
        layer.feed_forward.jacobian,
        layer.attention.differentiate_statistics,
        layer.feed_forward.differentiate_statistics,
    )


def test_forms_are_three_choices_and_each_can_be_made_alone():
    light, full = (BFTLayer(2, 6, form=form) for form in FORMS)
    assert statistics(light) == ("head", "mean", False, False)
    assert statistics(full) == ("channel", "diagonal", True, True)
    mixed = BFTLayer(2, 6, form="full", variance="head")
    assert statistics(mixed) == ("head", "diagonal", True, True)
    mixed = BFTLayer(2, 6, form="full", jacobian=None)
    assert statistics(mixed) == ("channel", None, True, True)
    mixed = BFTLayer(2, 6, differentiate_statistics=True)
    assert statistics(mixed) == ("head", "mean", True, True)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_saving(normalize_first, tmp_path):
    check_saving(
        lambda: BFTLayer(
            2,
            6,
            form="full",
            dropout=0.5,
            trainable_strength=True,
            normalize_first=normalize_first,
        ),
        inputs(),
        tmp_path,
    )


@pytest.mark.parametrize(
    "options",
    [{"bayesian": False}, {}, {"bayesian": False, "gated_attention": True}],
    ids=str,
)
def test_saving_in_the_drop_in_form(options, tmp_path):
    check_saving(lambda: BFTLayer(2, 6, **options), inputs()[:1], tmp_path)


@each_form
@pytest.mark.parametrize("precision", ["channel", "token"])
@pytest.mark.parametrize("width", [D, 1])
def test_output_spec(form, precision, width):
    check_output_spec(
        lambda: BFTLayer(2, 6, form=form, precision=precision), inputs(width)
    )


@pytest.mark.parametrize("bayesian", [False, True])
def test_output_spec_of_a_state_alone(bayesian):
    check_output_spec(lambda: BFTLayer(2, 6, bayesian=bayesian), inputs()[:1])


def test_output_spec_with_masks_in_their_places():
    symbols = [keras.Input((None, D)), keras.Input((None, 1))]
    masks = [
        keras.Input((None,), dtype="bool"),
        keras.Input((None, None), dtype="bool"),
    ]
    layer = BFTLayer(2, 6)
    model = keras.Model([*symbols, *masks], layer(*symbols, *masks))
    state, log_precision = inputs(1)
    padding, attention = IDS != 0, np.tril(np.ones((B, T, T), bool))
    outputs = arrays(model([state, log_precision, padding, attention]))
    expected = arrays(
        layer(
            state,
            log_precision,
            padding_mask=padding,
            attention_mask=attention,
        )
    )
    for x, y in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@each_form
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_first": False, "precision": "token"},
        {"gated": True, "normalization": "rms", "carry_units": False},
    ],
    ids=str,
)
def test_policies(form, options):
    check_policies(
        lambda **kwargs: BFTLayer(2, 6, form=form, **options, **kwargs),
        inputs(1),
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_strength_is_not_rounded_to_the_compute_dtype(policy):
    layer = BFTLayer(2, 6, strength=1.23456789, dtype=policy)
    seen = []
    residual = layer.residual.call

    def call(*args, strength, **kwargs):
        seen.append(numpy(strength))
        return residual(*args, strength=strength, **kwargs)

    layer.residual.call = call
    layer(*inputs())
    np.testing.assert_allclose(seen, 1.23456789, rtol=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"form": "light"},
        {"form": "full"},
        {"kriging_weights": False, "kalman_gain": False},
    ],
    ids=str,
)
def test_compiled(options):
    check_compiled(lambda: BFTLayer(2, 6, causal=True, **options), inputs())


def test_keras_masks_and_padding_masks_do_the_same():
    _, log_precision = inputs()
    symbol = keras.Input((T,), dtype="int32")
    its_log_precision = keras.Input((T, D))
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    first, second = BFTLayer(2, 6), BFTLayer(2, 6, form="full")
    outputs = second(*first(embedding(symbol), its_log_precision))
    masks = [MaskProbe()(output) for output in outputs]
    model = keras.Model([symbol, its_log_precision], [*outputs, *masks])
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


def test_masks_arrive_in_the_drop_in_form():
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    layer = BFTLayer(2, 6)
    model = keras.Sequential([embedding, layer, MaskProbe()])
    np.testing.assert_array_equal(numpy(model(IDS)), (IDS != 0).astype(int))
    state = numpy(embedding(IDS)).astype("float32")
    np.testing.assert_allclose(
        numpy(layer(embedding(IDS))),
        numpy(layer(state, padding_mask=IDS != 0)),
        atol=1e-6,
    )


def test_state_alone_starts_at_a_ratio_of_one():
    state, _ = inputs()
    layer = BFTLayer(2, 6, form="full")
    start = -np.log(state.var(-1, keepdims=True))
    np.testing.assert_allclose(
        numpy(layer(state)), numpy(layer(state, start)[0]), atol=1e-5
    )


@each_form
def test_drop_in_form_trains_in_sequential(form):
    check_drop_in_training(
        BFTLayer(2, 6, form=form, dropout=0.1),
        BFTLayer(2, 6, form=form, normalize_first=False),
    )


@each_form
def test_pairs_train_in_a_functional_model(form):
    check_pair_training(
        lambda: BFTLayer(2, 6, causal=True, form=form, trainable_strength=True)
    )


@pytest.mark.parametrize(
    "kriging_weights, kalman_gain",
    [(True, True), (True, False), (False, True), (False, False)],
)
def test_precision_reaches_the_state_by_weights_and_by_gain(
    kriging_weights, kalman_gain
):
    state, log_precision = inputs()
    layer = BFTLayer(
        2,
        6,
        form="full",
        kriging_weights=kriging_weights,
        kalman_gain=kalman_gain,
    )
    layer(state, log_precision)
    randomize(layer)
    leaf = keras.Variable(log_precision)
    variables = [leaf, layer.strength, *layer.trainable_variables]

    def gradients(index):
        return variable_gradients(
            lambda: weighted_sum(layer(state, leaf.value)[index]), variables
        )[1]

    of_state, of_precision = gradients(0), gradients(1)
    for gradient in of_state + of_precision:
        assert np.all(np.isfinite(gradient))
    for gradient in of_state[:2]:
        assert np.any(gradient != 0) == (kriging_weights or kalman_gain)
    for gradient in of_precision[:2]:
        assert np.all(gradient != 0)


@each_form
def test_strength_gets_a_gradient_at_zero(form):
    state, log_precision = inputs()
    layer = BFTLayer(2, 6, form=form, strength=0.0, trainable_strength=True)
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


def test_strength_stays_at_zero_when_a_step_would_make_it_negative():
    state, log_precision = inputs()
    layer = BFTLayer(2, 6, strength=0.01, trainable_strength=True)
    layer(state, log_precision)
    optimizer = keras.optimizers.SGD(1.0)
    gradients = [keras.ops.zeros(w.shape) for w in layer.trainable_variables]
    index = [w is layer.strength for w in layer.trainable_variables].index(True)
    gradients[index] = keras.ops.convert_to_tensor(0.5)
    optimizer.apply(gradients, layer.trainable_variables)
    assert numpy(layer.strength) == 0.0


@pytest.mark.parametrize("trainable", [False, True])
def test_strength_is_a_weight_that_learns_only_if_asked_for(trainable):
    layer = BFTLayer(2, 6, strength=0.5, trainable_strength=trainable)
    layer.build((B, T, D), (B, T, 1))
    assert numpy(layer.strength) == 0.5
    assert any(w is layer.strength for w in layer.weights)
    assert (
        any(w is layer.strength for w in layer.trainable_weights) == trainable
    )


@each_form
def test_only_the_full_form_differentiates_the_statistics(form):
    state, log_precision = inputs()
    layer = BFTLayer(2, 6, form=form)
    layer(state, log_precision)
    randomize(layer)
    kernels = [
        layer.attention.value_dense.kernel,
        layer.feed_forward.input_dense.kernel,
    ]
    _, gradients = variable_gradients(
        lambda: keras.ops.sum(layer(state, log_precision)[1]), kernels
    )
    for gradient in gradients:
        assert np.any(gradient != 0) == (form == "full")

    # The state's gradient against that with the observation held constant.
    observed = layer.attention(state, log_precision, strength=layer.strength)[1]
    observed = keras.ops.convert_to_numpy(keras.ops.stop_gradient(observed))

    def constant():
        innovation, _ = layer.attention(
            state, log_precision, strength=layer.strength
        )
        after, its_log_precision = layer.residual(
            state,
            log_precision,
            innovation,
            observed,
            strength=layer.strength,
        )
        after, _ = layer.feed_forward(after, its_log_precision)
        return weighted_sum(after)

    value, (held,) = variable_gradients(constant, kernels[:1])
    again, (gradient,) = variable_gradients(
        lambda: weighted_sum(layer(state, log_precision)[0]), kernels[:1]
    )
    assert again == pytest.approx(value, rel=1e-5)
    difference = np.max(np.abs(gradient - held))
    assert (difference > 1e-2) == (form == "full")
    assert form == "full" or difference < 1e-5


@pytest.mark.parametrize("mode", ["renormalized", "inverted"])
def test_every_dropout_has_an_effect(mode):
    state, log_precision = inputs()

    def outputs(dropout, attention_dropout):
        keras.utils.set_random_seed(1)
        layer = BFTLayer(
            2,
            6,
            dropout=dropout,
            attention_dropout=attention_dropout,
            dropout_mode=mode,
            seed=3,
        )
        again = [
            arrays(layer(state, log_precision, training=True))[0]
            for _ in range(2)
        ]
        return arrays(layer(state, log_precision))[0], *again

    none, *same = outputs(0.0, 0.0)
    for x in same:
        np.testing.assert_array_equal(x, none)
    results = [outputs(0.5, 0.0), outputs(0.0, 0.5), outputs(0.5, None)]
    for off, on, again in results:
        np.testing.assert_allclose(off, none, atol=1e-6)
        assert np.max(np.abs(on - none)) > 1e-2
        assert np.max(np.abs(on - again)) > 1e-2
    # `attention_dropout` defaults to `dropout`, so both drop in the last.
    assert np.max(np.abs(results[2][1] - results[0][1])) > 1e-2
    np.testing.assert_array_equal(outputs(0.5, None)[1], results[2][1])


def test_log_precision_of_any_dtype_gives_the_same():
    state, log_precision = inputs()
    layer = BFTLayer(2, 6)
    expected = arrays(layer(state, log_precision))
    outputs = layer(state.astype("float64"), log_precision.astype("float64"))
    assert "float32" in str(outputs[1].dtype)
    for x, y in zip(arrays(outputs), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_heads", 0),
        ("feed_forward_dim", 0),
        ("form", "heavy"),
        ("variance", "token"),
        ("jacobian", "full"),
        ("differentiate_statistics", "no"),
        ("precision", "head"),
        ("key_precision", "all"),
        ("strength", -1.0),
        ("prior_dof", -1.0),
        ("normalization", None),
        ("dropout", 1.0),
        ("gated_attention", True),
    ],
)
def test_wrong_arguments_raise(name, value):
    arguments = {"num_heads": 2, "feed_forward_dim": 6, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
        BFTLayer(**arguments)
