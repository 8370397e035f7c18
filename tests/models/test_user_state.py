"""States as containers, whatever made them."""

import io

import numpy as np
import pytest

from keras_bft.models import UserState

LENGTHS = [3, 1, 5]


def state(lengths=LENGTHS, slots=4, timed=True, restart_length=4, precise=True):
    rng = np.random.default_rng(len(lengths))
    rows = len(lengths)
    histories = [rng.integers(1, 9, n) for n in lengths]
    times = [np.sort(rng.integers(0, 2**40, n)) for n in lengths]
    return UserState(
        histories=histories,
        timestamps=times if timed else None,
        window_lengths=np.minimum(lengths, slots).astype("int64"),
        states=rng.normal(size=(rows, 2)).astype("float32"),
        caches=[
            {
                "key": rng.normal(size=(rows, slots, 2)).astype("float32"),
                "position": rng.integers(0, 9, (rows, slots)).astype("int32"),
            }
            for _ in range(2)
        ],
        restart_length=restart_length,
        log_precisions=(
            rng.normal(size=(rows, 2)).astype("float32") if precise else None
        ),
    )


def contents(state):
    """Everything in a state, as nested lists and names of dtypes."""
    arrays = [
        *state.histories,
        *(state.timestamps or ()),
        state.window_lengths,
        state.states,
        *(() if state.log_precisions is None else (state.log_precisions,)),
        *(array for cache in state.caches for array in cache.values()),
    ]
    return (
        [(array.tolist(), array.dtype.name) for array in arrays],
        [list(cache) for cache in state.caches],
        state.timestamps is None,
        state.log_precisions is None,
        state.restart_length,
    )


def test_windows_are_the_newest_items():
    users = state()
    assert [len(window) for window in users.windows] == [3, 1, 4]
    assert users.windows[2].tolist() == users.histories[2][1:].tolist()


@pytest.mark.parametrize("timed", [True, False])
def test_rows_are_users(timed):
    users = state(timed=timed)
    assert len(users) == 3
    for rows, expected in (
        (1, [1]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        ([2, 0, 2], [2, 0, 2]),
        (np.array([True, False, True]), [0, 2]),
        (slice(0, 0), []),
    ):
        some = users[rows]
        assert len(some) == len(expected)
        for row, user in enumerate(expected):
            assert contents(some[row]) == contents(users[user])
    assert [contents(one) for one in users] == [
        contents(users[user]) for user in range(3)
    ]
    with pytest.raises(IndexError):
        users[3]
    some = users[[0, 1]]
    some.caches[0]["key"][:] = 9.0
    some.states[:] = 9.0
    some.log_precisions[:] = 9.0
    assert contents(users) == contents(state(timed=timed))


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("lengths", [LENGTHS, [2], []])
def test_saving(timed, lengths, tmp_path):
    users = state(lengths, timed=timed, precise=timed)
    file = io.BytesIO()
    users.save(file)
    assert contents(UserState.load(io.BytesIO(file.getvalue()))) == (
        contents(users)
    )
    users.save(tmp_path / "users.npz")
    assert contents(UserState.load(tmp_path / "users.npz")) == contents(users)


@pytest.mark.parametrize("timed", [True, False])
def test_joining_undoes_splitting(timed):
    users = state(timed=timed, precise=timed)
    joined = UserState.concatenate([users[:1], users[1:1], users[1:]])
    assert contents(joined) == contents(users)


@pytest.mark.parametrize(
    "others",
    [[], [state(), state(slots=5)], [state(), state(timed=False)]]
    + [[state(), state(restart_length=2)], [state(), state(precise=False)]],
    ids=["none", "slots", "times", "restart", "precision"],
)
def test_states_that_do_not_fit_are_not_joined(others):
    with pytest.raises(ValueError, match=f"Received: {len(others)} states of"):
        UserState.concatenate(others)
