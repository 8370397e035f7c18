"""Mean-field scores and confidences, against the formulas in float64."""

import io
import math

import keras
import numpy as np
import pytest

from keras_bft.data import pad_sequences
from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from keras_bft.models import UserState
from keras_bft.models import _scoring
from keras_bft.models import confidence as confidence_module
from keras_bft.models._scoring import item_logits
from keras_bft.models._scoring import log_normalizer
from keras_bft.models.confidence import item_probabilities
from keras_bft.models.confidence import variances_of
from tests.compiled import compiled
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

NUM_ITEMS, MAX_LENGTH, DIM, K = 12, 8, 8, 4
# Three lengths padded to one, the last with an item that is no longer read.
HISTORIES = [
    [3, 5, 7, 2, 9],
    [4, 4, 8, 1, 1, 6, 5],
    [11, 9, 8, 7, 6, 5, 4, 1, 2],
]
TIMES = [[0, 5, 60, 90, 9000], [*range(7)], [*range(0, 900, 100)]]
FEATURES = {"categorical": [[n % 3] for n in range(NUM_ITEMS + 1)]}
VARIANTS = [
    (SASRec, {}),
    (
        SASRec,
        {
            "form": "light",
            "precision": "token",
            "carry_units": False,
            "normalize_first": False,
        },
    ),
    (SASRec, {"item_features": FEATURES}),
    (BERT4Rec, {}),
    (HSTU, {"num_time_buckets": 8}),
]


def built(kind=SASRec, **options):
    model = kind(
        NUM_ITEMS,
        MAX_LENGTH,
        **{"embedding_dim": DIM, "num_layers": 1, **options},
    )
    model.build((None, MAX_LENGTH))
    randomize(model)
    return model


def times_of(model):
    return {"timestamps": TIMES} if model.reads_timestamps else {}


def expected_states(model):
    """States that score and the variances of their channels."""
    newest = [h[-MAX_LENGTH:] for h in HISTORIES]
    if isinstance(model, BERT4Rec):
        newest = [[*h[-MAX_LENGTH + 1 :], model.mask_id] for h in HISTORIES]
    options = {}
    if model.reads_timestamps:
        times = [np.array(t[-MAX_LENGTH:]) - t[0] for t in TIMES]
        options["timestamps"] = pad_sequences(
            [t + 1 for t in times], MAX_LENGTH
        )
    encode = compiled(model.encode, model)
    rows, last = np.arange(len(newest)), [len(h) - 1 for h in newest]
    state, log_precision = (
        numpy(x)[rows, last]
        for x in encode(pad_sequences(newest, MAX_LENGTH), **options)
    )
    gamma, beta = numpy(model.final_norm.gamma), numpy(model.final_norm.beta)
    state = state - state.mean(axis=1, keepdims=True)
    square = (state**2).mean(axis=1, keepdims=True) + model.final_norm.epsilon
    state = state / np.sqrt(square) * gamma + beta
    variances = gamma**2 / np.exp(log_precision) / square
    if isinstance(model, BERT4Rec):
        kernel, bias = numpy(model.head.kernel), numpy(model.head.bias)
        before = state @ kernel + bias
        normal = 0.5 * (1 + np.vectorize(math.erf)(before / 2**0.5))
        density = np.exp(-(before**2) / 2) / np.sqrt(2 * np.pi)
        state = before * normal
        variances = (normal + before * density) ** 2 * (variances @ kernel**2)
    return state, variances


def expected_logits(model, table):
    """Inner products, and those of the mean field, `(n, items)`."""
    states, variances = expected_states(model)
    means = states @ table.T
    spread = 1 + np.pi / 8 * variances @ (table**2).T
    log_precision = -np.log(variances.mean(axis=1))
    return means, means / np.sqrt(spread), log_precision


def softmax(logits, left_out):
    weights = np.exp(logits)
    weights[0] = 0
    weights[left_out] = 0
    return weights / weights.sum()


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_values_are_those_of_the_formulas(kind, options):
    model = built(kind, **options)
    table = numpy(model.item_table())
    times = times_of(model)
    mean, mean_field, log_precision = expected_logits(model, table)
    # The precision matters, and not alike for all items.
    ratio = mean_field[:, 1:] / mean[:, 1:]
    assert ratio.min() < 0.98 and np.ptp(ratio) > 0.01
    for predictive, wanted in (("mean", mean), ("mean_field", mean_field)):
        scores = model.score(HISTORIES, predictive=predictive, **times)
        assert np.all(scores[:, 0] == -np.inf) and scores.dtype == "float32"
        np.testing.assert_allclose(
            scores[:, 1:], wanted[:, 1:], rtol=1e-4, atol=1e-4
        )
    for predictive, ranked, judged in (
        (None, mean, mean_field),
        ("mean", mean, mean),
        ("mean_field", mean_field, mean_field),
    ):
        for filter_seen in (True, False):
            ids, scores, confidence = model.recommend(
                HISTORIES,
                K,
                filter_seen,
                predictive=predictive,
                return_confidence=True,
                **times,
            )
            for row, history in enumerate(HISTORIES):
                left_out = history if filter_seen else []
                left = np.setdiff1d(np.arange(1, NUM_ITEMS + 1), left_out)
                order = left[np.argsort(-ranked[row, left])][:K]
                assert ids[row, : len(order)].tolist() == order.tolist()
                probability = softmax(judged[row], left_out)[order]
                found = confidence.items[row]
                np.testing.assert_allclose(
                    found[: len(order)], probability, rtol=2e-4
                )
                assert np.all(found[len(order) :] == 0)
                assert confidence.lists[row] == pytest.approx(found.sum())
            np.testing.assert_allclose(
                confidence.log_precision, log_precision, atol=1e-4
            )
    plain, _ = model.recommend(HISTORIES, K, **times)
    assert (
        plain.tolist()
        == model.recommend(HISTORIES, K, predictive="mean", **times)[0].tolist()
    )


def test_neither_batches_nor_order_matter():
    model = built()
    ids, scores, confidence = model.recommend(
        HISTORIES, K, return_confidence=True
    )
    other = model.recommend(
        HISTORIES[::-1], K, batch_size=2, return_confidence=True
    )
    assert other[0][::-1].tolist() == ids.tolist()
    for first, second in zip(confidence, other[2], strict=True):
        np.testing.assert_allclose(second[::-1], first, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options"), [VARIANTS[1], VARIANTS[-1]], ids=str
)
def test_states_that_go_on_are_as_sure(kind, options):
    model = built(kind, **options)
    times = times_of(model)
    before = [h[:-1] for h in HISTORIES]
    state = model.start(
        before, **{n: [t[:-1] for t in v] for n, v in times.items()}
    )
    state = model.append(
        state,
        [h[-1] for h in HISTORIES],
        **{n: [t[-1] for t in v] for n, v in times.items()},
    )
    file = io.BytesIO()
    UserState.concatenate([state[:1], state[1:]]).save(file)
    state = UserState.load(io.BytesIO(file.getvalue()))
    options = {"k": K, "predictive": "mean_field", "return_confidence": True}
    ids, scores, confidence = model.recommend(state, **options)
    expected = model.recommend(HISTORIES, **options, **times)
    assert ids.tolist() == expected[0].tolist()
    for first, second in zip(confidence, expected[2], strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-3)


def test_a_plain_model_has_probabilities_and_no_precision():
    model = built(bayesian=False)
    scores = model.score(HISTORIES).astype("float64")
    ids, _, confidence = model.recommend(HISTORIES, K, return_confidence=True)
    assert confidence.log_precision is None
    for row, history in enumerate(HISTORIES):
        expected = softmax(scores[row], history)[ids[row]]
        np.testing.assert_allclose(confidence.items[row], expected, rtol=1e-4)
    for call in (model.score, lambda h, **o: model.recommend(h, 1, **o)):
        with pytest.raises(ValueError, match="Received: .*plain SASRec"):
            call(HISTORIES, predictive="mean_field")
        for wrong in ("median", ""):
            with pytest.raises(ValueError, match=f"Received: .*='{wrong}'"):
                call(HISTORIES, predictive=wrong)
    state = model.start(HISTORIES)
    assert state.log_precisions is None
    again = model.recommend(state, K, return_confidence=True)[2]
    np.testing.assert_allclose(again.lists, confidence.lists, rtol=1e-4)
    # Of a state that another kind of model has made.
    with pytest.raises(ValueError, match="Received: log_precisions=None"):
        built().score(state, predictive="mean_field")


def test_lists_of_all_items_hold_the_next_one_and_empty_ones_nothing():
    model = built()
    everything = list(range(1, NUM_ITEMS + 1))
    for predictive in ("mean", "mean_field"):
        _, _, confidence = model.recommend(
            [everything, [1, 2]],
            NUM_ITEMS,
            predictive=predictive,
            return_confidence=True,
        )
        assert np.all(confidence.items[0] == 0) and confidence.lists[0] == 0
        assert np.all(confidence.items[1, -2:] == 0)
        assert confidence.lists[1] == pytest.approx(1, abs=1e-5)
        assert confidence.lists[1] <= 1
    ids, scores, confidence = model.recommend([], 3, return_confidence=True)
    assert confidence.items.shape == (0, 3)
    assert confidence.lists.shape == confidence.log_precision.shape == (0,)


@pytest.mark.parametrize("limits", [(1, 99), (7, 999), (999, 10)])
def test_parts_give_the_sum_of_the_whole(limits, monkeypatch):
    monkeypatch.setattr(_scoring, "_MAX_ITEMS", limits[0])
    monkeypatch.setattr(_scoring, "_MAX_SCORES", limits[1])
    monkeypatch.setattr(confidence_module, "_MAX_NUMBERS", 2 * DIM)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, DIM)).astype("float32")
    # Logits beyond what float32 can exponentiate.
    states[1] *= 100
    table = rng.normal(size=(NUM_ITEMS + 1, DIM)).astype("float32")
    variances = rng.gamma(1.0, size=(3, DIM)).astype("float32")
    histories = [np.array(h) for h in ([1], [2, 3, 3], range(1, NUM_ITEMS + 1))]
    for own in (None, variances):
        logits = item_logits(states, table, own).astype("float64")
        logits[:, 0] = -np.inf
        for row, history in enumerate(histories):
            logits[row, history] = -np.inf
        sums = log_normalizer(states, table, histories, own)
        expected = np.logaddexp.reduce(logits, axis=1)
        np.testing.assert_allclose(sums, expected, rtol=1e-5)
        ids = np.array([[4, 2, 6, 7, 8], [1, 5, 0, 0, 0], [0] * 5])
        found = item_probabilities(ids, states, table, histories, own)
        for row in (0, 1):
            wanted = np.exp(logits[row, ids[row]] - expected[row])
            np.testing.assert_allclose(found[row], wanted, rtol=1e-3)
        assert np.all(found[2] == 0)


def test_no_precision_is_too_small_or_too_large():
    states, table = np.ones((2, DIM), "float32"), np.eye(DIM, dtype="float32")
    table[0] = 0
    log_precisions = np.array([[-1e4], [1e4]], "float32") * np.ones((1, DIM))
    logits = item_logits(states, table, variances_of(log_precisions))
    np.testing.assert_allclose(logits[0], 0, atol=1e-12)
    np.testing.assert_array_equal(logits[1], [0] + [1] * (DIM - 1))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_is_about_as_sure(policy):
    model = built()
    expected = model.recommend(HISTORIES, K, return_confidence=True)[2]
    keras.config.set_dtype_policy(policy)
    half = built()
    half.set_weights(model.get_weights())
    found = half.recommend(HISTORIES, K, return_confidence=True)[2]
    np.testing.assert_allclose(found.lists, expected.lists, atol=0.05)
    np.testing.assert_allclose(
        found.log_precision, expected.log_precision, atol=0.1
    )
