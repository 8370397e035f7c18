"""States that go on give what the whole histories give."""

import keras
import numpy as np
import pytest

from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from keras_bft.models import UserState
from keras_bft.models._cached_encoder import CachedEncoder
from keras_bft.models._incremental import Incremental
from keras_bft.models.sequential_recommender import SequentialRecommender
from tests.layers.layer_checks import randomize

NUM_ITEMS, MAX_LENGTH, DIM = 20, 9, 8
# All of one padded length, since JAX compiles for each.
HISTORIES = [[3, 5, 7, 2, 9, 9], [4, 4, 8, 1, 1, 6, 5], [9, 8, 7, 6, 5, 4, 1]]
NEW = [[11, 2, 3], [2, 12, 13]]
TIMES = [
    [0, 5, 60, 90, 9000, 9000, 9004, 90_000],
    [1_700_000_000 + t for t in (0, 1, 1, 70, 3600, 7000, 7001, 7001, 9000)],
    [5, 6, 7, 8, 9, 10, 500, 70_000, 70_003],
]
TIMED = {"num_time_buckets": 16}
VARIANTS = [
    (SASRec, {"num_layers": 2}),
    (
        SASRec,
        {
            "form": "light",
            "precision": "token",
            "key_precision": "per_head",
            "carry_units": False,
            "prior": "mlp",
            "normalize_first": False,
        },
    ),
    (SASRec, {"bayesian": False}),
    (SASRec, {"bayesian": False, "gated_attention": True}),
    (HSTU, {"num_layers": 2, **TIMED}),
    (HSTU, {"bayesian": False}),
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


def timestamps(model, histories, times=TIMES):
    """Keyword arguments with the times of histories."""
    if not model.reads_timestamps:
        return {}
    return {
        "timestamps": [
            t[: len(h)] for t, h in zip(times, histories, strict=True)
        ]
    }


def new_times(model, histories, times=TIMES):
    """Keyword arguments with the times of the items that come after."""
    if not model.reads_timestamps:
        return {}
    return {
        "timestamps": [t[len(h)] for t, h in zip(times, histories, strict=True)]
    }


def check_equal(model, state, histories, times=TIMES):
    expected = model.score(histories, **timestamps(model, histories, times))
    # To check an order, scores must differ by more than they may be off.
    assert np.ptp(expected[:, 1:], axis=1).min() > 0.1
    np.testing.assert_allclose(
        model.score(state)[:, 1:], expected[:, 1:], atol=1e-5
    )
    return expected


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_appended_items_equal_the_whole_histories(kind, options):
    model = built(kind, **options)
    scores = []
    for strength in (1.0, 0.0) if model.bayesian else (1.0,):
        for block in model.blocks if model.bayesian else ():
            block.strength.assign(strength)
        histories = [list(h) for h in HISTORIES]
        state = model.start(histories, **timestamps(model, histories))
        check_equal(model, state, histories)
        for items in NEW:
            state = model.append(state, items, **new_times(model, histories))
            for history, item in zip(histories, items, strict=True):
                history.append(item)
            scores.append(check_equal(model, state, histories)[:, 1:])
    if model.bayesian:
        assert np.max(np.abs(scores[0] - scores[2])) > 1e-3
    ids, best = model.recommend(state, k=4)
    for row, history in enumerate(histories):
        assert not set(ids[row]) & set(history)
        left = np.setdiff1d(np.arange(1, NUM_ITEMS + 1), history)
        order = left[np.argsort(-scores[-1][row, left - 1])][:4]
        assert ids[row].tolist() == order.tolist()
        np.testing.assert_allclose(
            best[row], scores[-1][row, order - 1], atol=1e-5
        )
    seen, _ = model.recommend(state, k=NUM_ITEMS, filter_seen=False)
    assert sorted(seen[0]) == list(range(1, NUM_ITEMS + 1))


@pytest.mark.parametrize(
    ("model", "restart_length"),
    [(SASRec, None), (HSTU, 6)],
)
def test_full_windows_are_read_again(model, restart_length, monkeypatch):
    traces = []
    call = CachedEncoder.call

    def counted(self, inputs):
        traces.append(inputs["items"].shape)
        return call(self, inputs)

    monkeypatch.setattr(CachedEncoder, "call", counted)
    options = {"bayesian": False, **TIMED} if model is HSTU else {}
    model = built(model, **options)
    rng = np.random.default_rng(0)
    histories = [[1, 2, 3, 4, 5, 6, 7], list(range(1, 13))]
    events = np.cumsum(rng.integers(0, 5000, (2, 20)), axis=1)
    state = model.start(
        histories,
        restart_length=restart_length,
        **timestamps(model, histories, events),
    )
    lengths = []
    for _ in range(7):
        items = rng.integers(1, NUM_ITEMS + 1, 2).tolist()
        new = new_times(model, histories, events)
        state = model.append(state, items, **new)
        histories = [[*h, i] for h, i in zip(histories, items, strict=True)]
        windows = [window.tolist() for window in state.windows]
        for window, history in zip(windows, histories, strict=True):
            assert window == history[-len(window) :]
        cut = [
            e[len(h) - len(w) :]
            for e, h, w in zip(events, histories, windows, strict=True)
        ]
        check_equal(model, state, windows, cut)
        if restart_length is None:
            check_equal(model, state, histories, events)
        lengths.append([len(window) for window in windows])
    assert [h.tolist() for h in state.histories] == histories
    assert np.transpose(lengths).tolist() == (
        [[8, 9, 9, 9, 9, 9, 9], [9] * 7]
        if restart_length is None
        else [[8, 9, 6, 7, 8, 9, 6], [6, 7, 8, 9, 6, 7, 8]]
    )
    if keras.backend.backend() != "torch":
        # Once for each shape, and once more where TensorFlow relaxes it.
        assert len(traces) <= 6, traces
    ids, _ = model.recommend(state, k=NUM_ITEMS)
    for row, history in zip(ids, histories, strict=True):
        # Of all that was seen, in the window or before.
        assert not set(row) & set(history)


def test_states_are_split_joined_kept_and_left_as_they_were(tmp_path):
    def arrays(state):
        return [state.states, *state.caches[0].values(), state.window_lengths]

    model = built()
    state = model.start(HISTORIES)
    before = [array.copy() for array in arrays(state)]
    longer = model.append(state, [11, 12, 13])
    for old, array in zip(before, arrays(state), strict=True):
        np.testing.assert_array_equal(array, old)
    assert [len(history) for history in state.histories] == [6, 7, 7]
    joined = UserState.concatenate([longer[2], longer[[0]]])
    joined.save(tmp_path / "users.npz")
    model.save(tmp_path / "model.keras")
    # A server goes on from files.
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = UserState.load(tmp_path / "users.npz")
    check_equal(
        model,
        loaded.append(again, [1, 2]),
        [[*HISTORIES[2], 13, 1], [*HISTORIES[0], 11, 2]],
    )
    nobody = model.append(state[:0], [])
    assert len(nobody) == len(model.start([])) == 0
    assert model.recommend(nobody, k=3)[0].shape == (0, 3)


def test_half_precision_is_kept_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = built()
    state = model.append(model.start(HISTORIES[:1]), [11])
    for cache in state.caches:
        assert {array.dtype.name for array in cache.values()} == {"float32"}
    expected = model.score([[*HISTORIES[0], 11]])[:, 1:]
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(
        model.score(state)[:, 1:], expected, atol=2e-2 * scale
    )


@pytest.mark.parametrize(
    "make",
    [
        BERT4Rec,
        lambda *a, **k: SASRec(*a, layer_options={"causal": False}, **k),
    ],
)
def test_bidirectional_models_refuse(make):
    model = make(NUM_ITEMS, MAX_LENGTH, embedding_dim=DIM)
    for call in (lambda: model.start([[1]]), lambda: model.append(None, [1])):
        with pytest.raises(NotImplementedError, match="Received: .*causal"):
            call()


def test_wrong_arguments_raise(monkeypatch):
    # What is wrong is found before anything is computed.
    monkeypatch.setattr(Incremental, "_read", lambda *_: None)
    model, timed = built(), built(HSTU, **TIMED)
    state = model.start([[1]])
    later = timed.start([[1]], timestamps=[[0]])
    with pytest.raises(ValueError, match="Received: restart_length=10"):
        model.start([[1]], restart_length=10)
    with pytest.raises(ValueError, match="Received: histories"):
        model.start([[]])
    with pytest.raises(ValueError, match="does not read.*Received: timestamps"):
        model.start([[1]], timestamps=[[0]])
    with pytest.raises(ValueError, match="reads.*Received: no timestamps"):
        timed.start([[1]])
    with pytest.raises(ValueError, match="Received: 1 sequences for 2"):
        timed.start([[1], [2]], timestamps=[[0]])
    for items in ([], [1, 2], [1.5], [[1]]):
        with pytest.raises(ValueError, match="`items`.*one integer.*Received"):
            model.append(state, items)
    for item in (0, NUM_ITEMS + 1, -1):
        with pytest.raises(ValueError, match=f"`items`.*Received: .*{item}"):
            model.append(state, [item])
    with pytest.raises(ValueError, match="reads.*Received: no timestamps"):
        timed.append(later, [1])
    with pytest.raises(ValueError, match="`timestamps`.*one integer"):
        timed.append(later, [1], timestamps=["0"])
    seconds = timed.append(timed.start([[1]], [[0.5]]), [1], [7.5])
    np.testing.assert_array_equal(seconds.timestamps, [[0, 7]])
    with pytest.raises(ValueError, match="`state` must come.*Received: "):
        timed.append(state, [1], timestamps=[0])
    with pytest.raises(ValueError, match="timestamps=given"):
        model.score(state, timestamps=[[0]])
    with pytest.raises(ValueError, match="embedding_dim=4"):
        built(embedding_dim=4).recommend(state, k=1)
    assert not hasattr(SequentialRecommender, "start")
