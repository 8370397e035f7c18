import numpy as np
import pytest

from keras_bft.evaluation import fit_temperature
from keras_bft.evaluation import temperature as module


def sample(scale, number=3000, classes=6, seed=0):
    """Logits that are `scale` times those that the targets came from."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(number, classes))
    chosen = logits + rng.gumbel(size=logits.shape)
    return scale * logits, chosen.argmax(axis=1)


def loss(temperature, logits, targets):
    scaled = logits / temperature
    sums = np.logaddexp.reduce(scaled, axis=1)
    return np.mean(sums - scaled[np.arange(len(targets)), targets])


@pytest.mark.parametrize("scale", [0.02, 1.0, 3.0, 1000.0])
def test_nothing_near_is_better(scale, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 700)
    logits, targets = sample(scale)
    found = fit_temperature(logits, targets)
    assert found / scale == pytest.approx(1, abs=0.1)
    best = loss(found, logits, targets)
    for factor in (0.99, 1.01):
        assert loss(factor * found, logits, targets) > best
    # Its derivative is zero there, by differences.
    step = 1e-4 * found
    losses = [loss(found + s, logits, targets) for s in (-step, step)]
    assert abs(losses[1] - losses[0]) < 1e-10


def test_the_answer_is_known_for_two_classes():
    # Right in nine of ten at a margin of 5: T = 5 / log(9).
    logits = np.zeros((10, 2), "float32")
    logits[:, 0] = 5
    targets = np.array([0] * 9 + [1])
    expected = 5 / np.log(9)
    assert fit_temperature(logits, targets) == pytest.approx(expected)


def test_classes_left_out_do_not_matter():
    logits, targets = sample(2.0)
    expected = fit_temperature(logits, targets)
    padded = np.full((len(logits), 9), -np.inf, "float32")
    padded[:, 1:7] = logits
    found = fit_temperature(padded, targets + 1)
    assert found == pytest.approx(expected, rel=1e-5)
    padded[3, targets[3] + 1] = -np.inf
    with pytest.raises(ValueError, match=r"Received: targets\[3\]="):
        fit_temperature(padded, targets + 1)


def test_what_has_no_best_temperature_raises():
    logits = np.eye(3)
    with pytest.raises(ValueError, match="highest logit.*Received: 3 rows"):
        fit_temperature(logits, [0, 1, 2])
    with pytest.raises(ValueError, match="uniform.*Received: a mean advantage"):
        fit_temperature(logits, [1, 2, 0])


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (np.zeros(3), [0, 1, 2], "Received: logits of shape"),
        (np.zeros((2, 3)), [0], "Received: logits of shape"),
        (np.zeros((2, 3)), [0.0, 1.0], "dtype float64"),
        (np.zeros((2, 3)), [0, 3], "from 0 to 2. Received: 3"),
        (np.zeros((2, 3)), [-1, 1], "Received: -1"),
        (np.array([[0.0, np.nan]]), [0], "Received: 1 that are NaN"),
        (np.array([[0.0, np.inf]]), [0], "Received: 1 that are NaN"),
    ],
)
def test_wrong_arguments_raise(logits, targets, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(logits, targets)
