import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

from keras_bft.evaluation import brier_score
from keras_bft.evaluation import rank_targets
from keras_bft.evaluation import risk_coverage

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.mark.any_backend
def test_trains_asks_reports_and_does_not_do_it_again(load, tmp_path, capsys):
    confidence = load("confidence")
    answers = load("confidence_study.answers")
    options = ["--quick", "--members", "2", "--output", str(tmp_path)]
    confidence.main(options)
    report = (tmp_path / "report.md").read_text()
    assert "BFT, precision alone" in report and "60 users, 1 seeds" in report
    for name in ("reliability", "risk-coverage"):
        picture = tmp_path / f"{name}-synthetic.png"
        assert picture.read_bytes()[:4] == b"\x89PNG"
    with open(tmp_path / "measures.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for path in sorted(tmp_path.glob("synthetic/*/*/*/answers/answers.npz")):
        found |= answers.load(path)
    assert len(found) == 11
    for method, measure, function in (
        ("BFT, mean field", "Brier", brier_score),
        ("plain, MC dropout", "Brier", brier_score),
        ("BFT, precision alone", "AURC", lambda c, h: risk_coverage(c, h).area),
    ):
        by_seed = {
            row["seed"]: row
            for row in rows
            if (row["method"], row["measure"]) == (method, measure)
        }
        given = found[method]
        value = function(given.confidence, given.hits)
        assert float(by_seed["0"]["value"]) == pytest.approx(value)
        assert float(by_seed["mean"]["value"]) == pytest.approx(value)
        assert float(by_seed["mean"]["low"]) <= value
        assert float(by_seed["mean"]["high"]) >= value
    methods = {row["method"] for row in rows}
    assert methods - set(found) == {"plain, ensemble of 2"}

    # The answers are those of the model and its `recommend`.
    arguments = confidence.parse_arguments(options)
    [settings] = confidence.make_grid(arguments)
    data = confidence.Dataset.read(None, True)
    capsys.readouterr()
    model, _ = confidence.trained(
        arguments.models[1], data, 0, settings, tmp_path
    )
    histories, targets = data.split.test_histories, data.split.test_targets
    for predictive, method in (
        (None, "mean field"),
        ("mean", "list probability"),
    ):
        ids, _, sure = model.recommend(
            histories, 10, predictive=predictive, return_confidence=True
        )
        given = found[f"BFT, {method}"]
        np.testing.assert_allclose(given.confidence, sure.lists, rtol=1e-3)
        hits = (ids == targets[:, None]).any(axis=1)
        np.testing.assert_array_equal(given.hits, hits)
    ranking = rank_targets(model, histories, targets, verbose=False)
    np.testing.assert_array_equal(given.hits, ranking.hits(10))
    assert 0 < hits.sum() < len(hits)

    confidence.main(options)
    output = capsys.readouterr().out
    assert output.count("Trained before.") == 4 and "loss" not in output
    assert "user" not in output.replace("users", "")
    assert (tmp_path / "report.md").read_text() == report
    with pytest.raises(ValueError, match="k was 10 and now is 5"):
        confidence.main([*options, "--k", "5"])


def test_every_pass_drops_something_else(load):
    methods = load("confidence_study.methods")
    counts = np.arange(9)
    model = load("study.variants").make_model("sasrec", counts, 6, dropout=0.5)
    with_dropout = methods._WithDropout(model)
    inputs = {
        "items": np.array([[1, 2, 3, 0, 0, 0]] * 2, "int32"),
        "last": np.array([2, 2], "int32"),
    }
    first, second = (with_dropout.predict_on_batch(inputs) for _ in range(2))
    assert first.shape == (2, model.embedding_dim)
    assert np.abs(first - second).max() > 0.1
    assert np.abs(first[0] - first[1]).max() > 0.1


@pytest.mark.parametrize(
    "options",
    [["--models", "sasrec"], ["--models", "hstu", "bft-hstu"]]
    + [["--dropout", "0.1", "0.2"]],
)
def test_command_lines_of_something_else_end(load, options, capsys):
    with pytest.raises(SystemExit):
        load("confidence").parse_arguments(options)
    assert "error: " in capsys.readouterr().err


def test_lists_and_what_they_hold(load):
    answers = load("confidence_study.answers")
    scores = np.array([[9.0, 1.0, 2.0, 0.0], [9.0, 1.0, 1.0, 3.0]], "float32")
    histories = [np.array([2]), np.array([1, 3])]
    logits = answers.log_weights(scores, histories, True)
    probabilities = answers.softmax(logits, 2.0)
    share = np.exp(0.5) / (np.exp(0.5) + 1)
    expected = [[0, share, 0, 1 - share], [0, 0, 1, 0]]
    np.testing.assert_allclose(probabilities, expected)
    ids = answers.best(probabilities, 2)
    sure, hits = answers.judge(probabilities, ids, np.array([3, 1]))
    # One item is left to the second user, and no list holds what is not.
    assert sure.tolist() == [1, 1] and hits.tolist() == [True, False]
    kept = answers.softmax(answers.log_weights(scores, histories, False))
    assert np.all(kept[:, 1:] > 0) and np.all(kept[:, 0] == 0)


def test_the_factor_of_the_variances_is_found(load):
    methods = load("confidence_study.methods")
    rng = np.random.default_rng(0)
    mean = 4 * rng.normal(size=(4000, 8))
    mean[:, 0] = -np.inf
    # Of half of the users the logits say much less than they seem to.
    spread = np.where(np.arange(4000) % 2, 0.04, 0.0001)[:, None]
    mean_field = mean / np.sqrt(1 + spread)
    np.testing.assert_allclose(
        methods.relative_spread(mean, mean_field)[:, 1:],
        np.broadcast_to(spread, (4000, 7)),
        rtol=1e-6,
    )
    truth = mean / np.sqrt(1 + 100 * spread) / 1.5
    targets = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    factor, temperature = methods.fit_factor(mean, mean_field, targets)
    assert factor == 100 and temperature == pytest.approx(1.5, abs=0.15)


def test_quarters_and_intervals(load):
    measures = load("confidence_study.measures")
    answers = load("confidence_study.answers")
    rng = np.random.default_rng(0)
    sure = rng.permutation(200) / 200
    hits = rng.random(200) < sure
    values = measures.measure(sure, hits, True)
    order = np.argsort(sure)
    assert values["least confident quarter"] == pytest.approx(
        hits[order[:50]].mean()
    )
    assert values["most confident quarter"] == pytest.approx(
        hits[order[-50:]].mean()
    )
    assert values["hit rate"] == hits.mean()
    given = answers.Answers(sure, hits)
    same = {"a": {0: given, 1: given}, "b": {0: given}}
    drawn = measures.resampled(same, 200)
    np.testing.assert_allclose(drawn["a"]["NLL"], drawn["b"]["NLL"])
    middle, low, high = measures.interval(drawn["a"]["hit rate"])
    error = np.sqrt(middle * (1 - middle) / 200)
    assert middle == pytest.approx(hits.mean())
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.2)
    order_only = measures.resampled({"plain, max probability": {0: given}}, 1)
    assert "NLL" not in order_only["plain, max probability"]
