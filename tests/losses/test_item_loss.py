import keras
import numpy as np
import pytest

from keras_bft.losses import BCE
from keras_bft.losses import GBCE
from keras_bft.losses import FullSoftmax
from keras_bft.losses import ItemLoss
from keras_bft.losses import SampledSoftmax
from tests.gradients import gradient_function
from tests.losses.catalogue import catalogue

# 40 negatives go through the binary losses in two rounds.
LOSSES = {
    "full": FullSoftmax(),
    "sampled_uniform": SampledSoftmax(num_negatives=8),
    "sampled_log_uniform": SampledSoftmax(8, sampling="log_uniform"),
    "bce_3": BCE(num_negatives=3),
    "bce_40": BCE(num_negatives=40),
    "gbce": GBCE(num_negatives=4),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@each_loss
def test_is_a_float32_scalar_and_the_seed_decides(loss):
    targets, states, table = catalogue()
    value = loss.from_states(targets, states, table, seed=3)
    assert tuple(value.shape) == ()
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    assert float(value) == float(
        loss.from_states(targets, states, table, seed=3)
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "full"])
def test_a_generator_draws_anew_each_time(name):
    targets, states, table = catalogue()
    generator = keras.random.SeedGenerator(5)
    values = [
        float(LOSSES[name].from_states(targets, states, table, generator))
        for _ in range(4)
    ]
    assert len(set(values)) == 4


@each_loss
def test_padding_has_no_effect_and_no_gradient(loss):
    targets, states, table = catalogue()
    padded = targets == 0
    polluted, polluted_table = states.copy(), table.copy()
    polluted[padded] = np.nan
    polluted_table[0] = np.nan

    differentiate = gradient_function(
        lambda states, table: loss.from_states(targets, states, table, seed=1)
    )
    value, gradients = differentiate(states, table)
    again, again_gradients = differentiate(polluted, polluted_table)
    assert value == pytest.approx(again, rel=1e-6)
    assert np.all(gradients[0][padded] == 0.0)
    assert np.all(gradients[1][0] == 0.0)
    assert np.any(gradients[0][~padded] != 0.0)
    for gradient, again_gradient in zip(
        gradients, again_gradients, strict=True
    ):
        np.testing.assert_allclose(gradient, again_gradient, atol=1e-7)


@each_loss
def test_no_real_position_gives_zero_and_zero_gradients(loss):
    _, states, table = catalogue()
    value, gradients = gradient_function(
        lambda states, table: loss.from_states(
            np.zeros((2, 5), "int32"), states, table, seed=1
        )
    )(states, table)
    assert value == 0.0
    for gradient in gradients:
        assert np.all(gradient == 0.0)


@each_loss
def test_gradients_equal_finite_differences(loss):
    targets, states, table = catalogue()
    direction = [
        np.random.default_rng(9).normal(size=a.shape).astype("float32")
        for a in (states, table)
    ]

    # The differences come from the compiled function as well: XLA draws other
    # numbers from a seed than TensorFlow does.
    differentiate = gradient_function(
        lambda states, table: loss.from_states(targets, states, table, seed=2)
    )
    _, gradients = differentiate(states, table)
    slope = sum(
        float(np.sum(g * d, dtype="float64"))
        for g, d in zip(gradients, direction, strict=True)
    )
    step = 1e-2
    high, low = (
        differentiate(
            states + sign * step * direction[0],
            table + sign * step * direction[1],
        )[0]
        for sign in (1, -1)
    )
    assert slope == pytest.approx((high - low) / (2 * step), rel=2e-3)


@each_loss
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_states_are_scored_in_float32(loss, dtype):
    targets, states, table = catalogue()
    half = keras.ops.cast(states, dtype)
    rounded = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
    value = loss.from_states(targets, half, table, seed=1)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    assert float(value) == pytest.approx(
        float(loss.from_states(targets, rounded, table, seed=1)), rel=1e-6
    )


@each_loss
def test_extreme_scores_stay_finite(loss):
    targets, states, table = catalogue()
    value, gradients = gradient_function(
        lambda states, table: loss.from_states(targets, states, table, seed=1)
    )(states * 1e3, table * 1e2)
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))


@each_loss
def test_takes_targets_of_any_leading_shape(loss):
    targets, states, table = catalogue()
    flat = loss.from_states(
        targets.reshape(-1).astype("int64"),
        states.reshape(-1, states.shape[-1]),
        keras.Variable(table, trainable=False),
        seed=4,
    )
    assert float(flat) == pytest.approx(
        float(loss.from_states(targets, states, table, seed=4)), rel=1e-6
    )


@each_loss
def test_config_round_trip(loss):
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(copy) is type(loss)
    assert copy.get_config() == loss.get_config()
    assert {
        key: value for key, value in vars(copy).items() if key[0] != "_"
    } == {key: value for key, value in vars(loss).items() if key[0] != "_"}


@each_loss
def test_a_prediction_is_refused(loss):
    with pytest.raises(TypeError, match=r"from_states.*Received: y_pred"):
        loss(np.ones((2, 5)), np.ones((2, 5, 11)))


def test_a_subclass_needs_only_the_losses_of_positions():
    class Squared(ItemLoss):
        def position_losses(self, targets, states, item_embeddings, seed=None):
            return keras.ops.sum(keras.ops.square(states), axis=-1)

    targets, states, table = catalogue()
    expected = np.square(states[targets != 0]).sum(-1).mean()
    loss = Squared()
    assert loss.name == "squared"
    assert float(loss.from_states(targets, states, table)) == pytest.approx(
        expected, rel=1e-6
    )
    with pytest.raises(NotImplementedError, match="position_losses"):
        ItemLoss().from_states(targets, states, table)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"targets": np.ones((2, 5), "float32")}, "targets of dtype float32"),
        ({"targets": np.ones((2, 4), "int32")}, "targets of shape"),
        ({"targets": np.ones((10,), "int32")}, "targets of shape"),
        ({"states": np.ones((2, 5, 7), "float32")}, "states of shape"),
        ({"states": np.ones((6,), "float32")}, "states of shape"),
        ({"item_embeddings": np.ones((6,), "float32")}, "item_embeddings of"),
        ({"item_embeddings": np.ones((1, 6), "float32")}, "item_embeddings of"),
    ],
)
def test_arguments_that_do_not_fit_raise(change, message):
    targets, states, table = catalogue()
    arguments = {
        "targets": targets,
        "states": states,
        "item_embeddings": table,
    }
    with pytest.raises(ValueError, match=f"Received: {message}"):
        FullSoftmax().from_states(**(arguments | change))
