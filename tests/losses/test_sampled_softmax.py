import keras
import numpy as np
import pytest

from keras_bft.losses import FullSoftmax
from keras_bft.losses import SampledSoftmax
from tests.gradients import gradient_function
from tests.losses.catalogue import NUM_ITEMS
from tests.losses.catalogue import catalogue
from tests.losses.catalogue import real_positions

each_sampling = pytest.mark.parametrize("sampling", ["uniform", "log_uniform"])


def proposal(sampling, num_items):
    ids = np.arange(1, num_items + 1)
    if sampling == "uniform":
        return np.full(num_items, 1.0 / num_items)
    return np.log((ids + 1) / ids) / np.log(num_items + 1)


@each_sampling
@pytest.mark.parametrize("correction", [True, False])
def test_value_equals_float64(sampling, correction):
    targets, states, table = catalogue()
    loss = SampledSoftmax(7, sampling=sampling, correction=correction)
    drawn = keras.ops.convert_to_numpy(loss.draw_negatives(NUM_ITEMS, seed=3))
    q = proposal(sampling, NUM_ITEMS)
    y, h = real_positions(targets, states)
    expected = []
    for target, state in zip(y, h, strict=True):
        scores = table.astype("float64") @ state
        total = np.exp(scores[target])
        for j in drawn:
            if j != target:
                weight = 7 * q[j - 1] if correction else 1.0
                total += np.exp(scores[j]) / weight
        expected.append(np.log(total) - scores[target])
    assert np.isin(y, drawn).any()  # An accidental hit is part of the test.
    value = loss.from_states(targets, states, table, seed=3)
    assert float(value) == pytest.approx(np.mean(expected), rel=1e-5)


@each_sampling
def test_partition_function_is_unbiased(sampling):
    targets, states, table = catalogue(seed=1)
    target, state = targets[:1, :1], 0.5 * states[:1, :1]
    scores = table[1:].astype("float64") @ state[0, 0]
    full = np.exp(scores).sum()
    loss = SampledSoftmax(12, sampling=sampling)
    generator = keras.random.SeedGenerator(0)
    estimates = np.exp(
        [
            float(loss.from_states(target, state, table, generator))
            for _ in range(400)
        ]
        + scores[target[0, 0] - 1]
    )
    error = estimates.std() / np.sqrt(len(estimates))
    assert error < 0.03 * full
    assert abs(estimates.mean() - full) < 4 * error


@each_sampling
def test_approaches_the_full_softmax(sampling):
    targets, states, table = catalogue()
    sampled = SampledSoftmax(100_000, sampling=sampling)
    value, gradients = gradient_function(
        lambda s, e: sampled.from_states(targets, s, e, seed=0)
    )(states, table)
    full, full_gradients = gradient_function(
        lambda s, e: FullSoftmax().from_states(targets, s, e)
    )(states, table)
    assert value == pytest.approx(full, abs=0.02)
    for gradient, full_gradient in zip(gradients, full_gradients, strict=True):
        np.testing.assert_allclose(gradient, full_gradient, atol=0.01)


@each_sampling
def test_ids_follow_the_proposal(sampling):
    num_draws = 200_000
    loss = SampledSoftmax(num_draws, sampling=sampling)
    ids = keras.ops.convert_to_numpy(loss.draw_negatives(NUM_ITEMS, seed=1))
    q = proposal(sampling, NUM_ITEMS)
    counts = np.bincount(ids, minlength=NUM_ITEMS + 1)
    assert len(counts) == NUM_ITEMS + 1
    assert counts[0] == 0
    deviation = np.sqrt(num_draws * q * (1 - q))
    assert np.all(np.abs(counts[1:] - num_draws * q) < 5 * deviation)


def test_log_uniform_reaches_every_id_of_a_large_catalogue():
    num_items, num_draws = 2_000_000, 1_000_000
    loss = SampledSoftmax(num_draws, sampling="log_uniform")
    ids = keras.ops.convert_to_numpy(loss.draw_negatives(num_items, seed=1))
    assert ids.min() == 1
    assert ids.max() <= num_items
    tail = proposal("log_uniform", num_items)[num_items // 2 :]
    seen = 1 - (1 - tail) ** num_draws
    distinct = len(np.unique(ids[ids > num_items // 2]))
    # Drawn from one float32, about 4 percent fewer ids would be seen.
    assert distinct == pytest.approx(seen.sum(), rel=0.02)


def test_only_hits_leave_a_finite_zero_loss():
    targets = np.ones((1, 2), "int32")
    states = np.ones((1, 2, 3), "float32")
    value, gradients = gradient_function(
        lambda s, e: SampledSoftmax(4).from_states(targets, s, e, seed=0)
    )(states, np.ones((2, 3), "float32"))
    assert value == 0.0
    for gradient in gradients:
        assert np.all(gradient == 0.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_negatives": 0}, "num_negatives=0"),
        ({"num_negatives": True}, "num_negatives=True"),
        ({"num_negatives": 2.0}, "num_negatives=2.0"),
        ({"sampling": "zipf"}, "sampling='zipf'"),
        ({"correction": "log_q"}, "correction='log_q'"),
    ],
)
def test_bad_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=f"Received: {message}"):
        SampledSoftmax(**arguments)
