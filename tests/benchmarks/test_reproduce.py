import csv
import importlib
import types
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bft
from keras_bft.evaluation import Ranking

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_trains_reports_and_does_not_train_again(load, tmp_path, capsys):
    reproduce = load("reproduce")
    options = ["--quick", "--models", "sasrec", "bft-sasrec"]
    options += ["--output", str(tmp_path)]
    reproduce.main(options)
    report = (tmp_path / "report.md").read_text()
    for part in ("bft-sasrec minus sasrec", "Mechanism of bft-sasrec"):
        assert part in report
    for name in ("overall", "cold_start", "mechanism", "context"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    rows = read_csv(tmp_path / "comparisons.csv")
    row = next(
        row
        for row in rows
        if row["metric"] == "hr@10" and row["stratum"] == "all users"
    )
    (ranks,) = tmp_path.glob("synthetic/bft-sasrec/*/seed0/ranks.csv.gz")
    assert float(row["second_mean"]) == Ranking.from_csv(ranks).hit_rate(10)

    capsys.readouterr()
    reproduce.main(options)
    output = capsys.readouterr().out
    assert output.count("Finished before.") == 2 and "loss" not in output
    assert (tmp_path / "report.md").read_text() == report
    reproduce.main(["--report-only", "--output", str(tmp_path)])
    assert (tmp_path / "report.md").read_text() == report


def test_the_best_point_of_the_grid_is_trained_with_the_other_seeds(
    load, tmp_path, monkeypatch
):
    reproduce = load("reproduce")
    settings = load("study.settings")
    options = ["--dropout", "0.1", "0.3", "0.6", "--seeds", "3"]
    arguments = settings.parse_arguments([*options, "--output", str(tmp_path)])
    grid = settings.make_grid(arguments)
    calls = []

    def run(name, data, seed, settings, output):
        calls.append((seed, settings.dropout))
        return {"val_ndcg@10": -abs(settings.dropout - 0.35)}

    monkeypatch.setattr(reproduce, "run", run)
    data = load("study.runs").Dataset.read(None, quick=True)
    reproduce.train_all(data, "sasrec", grid, arguments)
    assert calls == [(0, 0.1), (0, 0.3), (0, 0.6), (1, 0.3), (2, 0.3)]


def test_mechanism_holds_what_the_trace_says(load, tmp_path):
    mechanism = load("study.mechanism")
    variants = load("study.variants")
    counts = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])
    model = variants.make_model("bft-sasrec", counts, 6, embedding_dim=8)
    prior = np.arange(9.0)[:, None]
    model.prior.embeddings.assign(prior)
    histories = [np.array([1, 2, 7, 8, 3, 5])] * 3
    mechanism.write_mechanism(model, histories, counts, 8, tmp_path)
    rows = {
        (row["value"], row["quartile"][:2]): row
        for row in read_csv(tmp_path / "mechanism.csv")
    }
    name = "block_0/residual/prior_log_precision"
    for quartile, items in (("Q0", [1, 2]), ("Q1", [3]), ("Q3", [7, 8])):
        row = rows[name, quartile]
        assert int(row["number"]) == 3 * len(items)
        assert float(row["mean"]) == pytest.approx(np.mean(items))
        assert float(row["stddev"]) == pytest.approx(np.std(items), abs=1e-5)
    assert float(rows["item_prior", "Q2"]["mean"]) == 5.5

    mechanism.write_context(model, histories, 8, tmp_path)
    sizes = [
        float(row["mean"])
        for row in read_csv(tmp_path / "context.csv")
        if row["value"] == "block_0/attention/effective_sample_size"
    ]
    # One visible key is one observation; more keys are never fewer.
    assert sizes[0] == 1.0 and len(sizes) == 5 and sizes[1] > 1.0


def test_names_of_variants(load):
    variants = load("study.variants")
    assert variants.parse_variant("bft-sasrec:no-units:renormalized") == (
        True,
        "sasrec",
        {"carry_units": False, "dropout_mode": "renormalized"},
    )
    _, _, options = variants.parse_variant("bft-sasrec:dof-2:no-jacobian")
    assert options == {"layer_options": {"prior_dof": 2.0, "jacobian": None}}
    counterpart = variants.plain_counterpart
    assert counterpart("bft-hstu:light:unscaled") == "hstu:unscaled"
    names = variants.expand(["sasrec", "ablations", "sasrec"])
    assert names[0] == "sasrec" and "bft-sasrec:gain-one" in names
    for name in ("gru", "bft-sasrec:heavy"):
        with pytest.raises(ValueError, match="Received: '"):
            variants.expand([name])


def test_every_variant_builds(load):
    variants = load("study.variants")
    for name in variants.expand(["ablations", "sasrec:gated", "bft-bert4rec"]):
        model = variants.make_model(name, np.arange(9), 6, embedding_dim=8)
        assert variants.parse_variant(name)[0] == model.bayesian


def test_a_study_without_runs_raises(load, tmp_path):
    with pytest.raises(ValueError, match="Received: output="):
        load("study.report").write_report(tmp_path)


def test_ablations_are_of_any_model_and_compared_with_it(load):
    variants = load("study.variants")
    names = variants.expand(["bft-sasrec:no-units:unscaled:ablations"])
    assert "bft-sasrec:no-units:unscaled:gain-one" in names
    assert not any(name.endswith(":no-units") for name in names)
    assert len(names) == len(variants.ABLATIONS) - 1
    assert variants.ablated_from("bft-sasrec:no-units:unscaled:light") == [
        ("no-units", "bft-sasrec:unscaled:light"),
        ("light", "bft-sasrec:no-units:unscaled"),
    ]
    assert variants.ablated_from("sasrec:light") == []


def test_the_mask_rates_are_settings_of_bert4rec_alone(load):
    settings = load("study.settings")
    arguments = settings.parse_arguments(["--mask-rate", "0.6"])
    [grid] = settings.make_grid(arguments)
    assert grid.of_model("bert4rec")["mask_rate"] == 0.6
    assert grid.of_model("bert4rec")["last_rate"] == 0.1
    assert not {"mask_rate", "last_rate"} & set(grid.of_model("sasrec"))


@pytest.mark.any_backend
def test_a_variant_is_ranked_by_its_predictive_distribution(
    load, tmp_path, monkeypatch
):
    runs = load("study.runs")
    settings = load("study.settings")
    arguments = settings.parse_arguments(["--quick", "--output", str(tmp_path)])
    [point] = settings.make_grid(arguments)
    data = runs.Dataset.read(None, quick=True)
    asked = []
    score = runs.keras_bft.models.SASRec.score

    def listen(self, *args, **kwargs):
        asked.append(kwargs.get("predictive", "mean"))
        return score(self, *args, **kwargs)

    monkeypatch.setattr(runs.keras_bft.models.SASRec, "score", listen)
    name = "bft-sasrec:light:mean-field"
    runs.run(name, data, 0, point, tmp_path)
    assert asked[-1] == "mean_field" and "mean" in asked


@pytest.mark.any_backend
def test_scores_with_an_uncertain_item_have_the_variance_of_a_product(load):
    score = load("study.item_precision").score
    keras.utils.set_random_seed(0)
    model = keras_bft.models.SASRec(6, 5, 4, scale_embeddings=True)
    model.build((None, 5))
    histories = [np.array([1, 2, 3]), np.array([4])]
    model.prior.embeddings.assign(np.full((7, 1), 40.0))
    certain = model.score(histories, predictive="mean_field")
    np.testing.assert_allclose(score(model, histories), certain, rtol=1e-5)
    prior = np.arange(7.0)[:, None] - 4.0
    model.prior.embeddings.assign(prior)
    read, user = model.start(histories), 1
    x, v = read.states[user], np.exp(-read.log_precisions[user])
    e = keras.ops.convert_to_numpy(model.item_table())[5]
    # Embeddings are scaled by 2 on their way in.
    u = np.exp(-prior[5, 0]) / 4.0
    rng = np.random.default_rng(0)
    shape = (2**20, 4)
    products = rng.normal(x, np.sqrt(v), shape) * rng.normal(e, u**0.5, shape)
    expected = x @ e / np.sqrt(1 + np.pi / 8 * products.sum(1).var())
    assert score(model, histories)[user, 5] == pytest.approx(expected, rel=1e-2)
    assert np.all(score(model, histories)[:, 0] == -np.inf)


@pytest.mark.any_backend
def test_figures_show_no_more_models_than_there_are_colours(load):
    shown = load("study.figures").shown
    seeds = {"sasrec": 3, "bft-sasrec": 3, "bft-sasrec:no-units": 3}
    ablations = load("study.variants").expand(["bft-sasrec:ablations"])
    one_seed = dict.fromkeys([*ablations, "bft-hstu"], 1)
    study = types.SimpleNamespace(
        models={n: range(k) for n, k in (one_seed | seeds).items()}
    )
    assert sorted(shown(study)) == sorted([*seeds, "bft-hstu"])
    # As many seeds of each: those with one thing changed are too many.
    study.models = dict.fromkeys(study.models, range(1))
    assert sorted(shown(study)) == ["bft-hstu", "bft-sasrec", "sasrec"]
    study.models = dict.fromkeys(seeds, range(1))
    assert shown(study) == list(seeds)
