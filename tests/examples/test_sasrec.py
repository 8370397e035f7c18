import csv
import importlib
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bft
from keras_bft.evaluation import Ranking
from keras_bft.evaluation import rank_targets

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def sasrec(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("sasrec")


def run_quick(sasrec, folder, *options):
    # Short inputs have few padded lengths, so little is compiled.
    quick = ["--quick", "--max-length", "4", "--output", str(folder)]
    sasrec.main([*quick, *options])


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_prints_and_saves_the_comparison_and_does_not_train_again(
    sasrec, tmp_path, monkeypatch, capsys
):
    options = ["--loss", "sampled", "--negatives", "20"]
    run_quick(sasrec, tmp_path, *options)
    text = capsys.readouterr().out
    assert "items of the history filtered" in text
    assert "BFT minus plain" in text
    assert "target's training count" in text and "history length" in text
    assert (tmp_path / "comparison.png").read_bytes()[:4] == b"\x89PNG"

    interactions = keras_bft.data.Interactions.load(tmp_path / "interactions")
    split = keras_bft.data.leave_one_out(interactions.sequences())
    overall = read_csv(tmp_path / "summary.csv")[0]
    assert (overall["metric"], overall["stratum"]) == ("hr@10", "all users")
    for name in ("plain", "BFT"):
        folder = tmp_path / f"{name.lower()}-seed0"
        # The saved model gives the ranks, and the ranks give the summary.
        ranking = Ranking.from_csv(folder / "ranks.csv")
        model = keras.saving.load_model(folder / "model.keras")
        assert model.get_config()["bayesian"] is (name == "BFT")
        again = rank_targets(
            model, split.test_histories, split.test_targets, verbose=False
        )
        np.testing.assert_array_equal(again.ranks, ranking.ranks)
        users = interactions.user_ids[split.users]
        assert ranking.users.tolist() == users.astype(str).tolist()
        rows = read_csv(folder / "ranks.csv")
        hit_rate = np.mean([float(row["rank"]) <= 10 for row in rows])
        assert float(overall[name]) == pytest.approx(hit_rate)
        history = read_csv(folder / "history.csv")
        assert [row["epoch"] for row in history] == ["1", "2"]
        assert not (folder / "checkpoint.npz").exists()

    summary = (tmp_path / "summary.csv").read_text()
    monkeypatch.delattr(sasrec, "make_model")
    run_quick(sasrec, tmp_path, *options)
    assert capsys.readouterr().out.count("Finished before") == 2
    assert (tmp_path / "summary.csv").read_text() == summary
    # A changed setting is refused before anything is trained or replaced.
    with pytest.raises(SystemExit, match="dropout was 0.2 and now is 0.1"):
        run_quick(sasrec, tmp_path, *options, "--dropout", "0.1")


def test_a_training_goes_on_where_it_stopped(
    sasrec, tmp_path, monkeypatch, capsys
):
    calls, fit = [], keras_bft.models.SASRec.fit

    def noted(self, dataset, *arguments, **options):
        epochs = options["initial_epoch"], options["epochs"]
        calls.append((dataset.epoch, *epochs))
        return fit(self, dataset, *arguments, **options)

    monkeypatch.setattr(keras_bft.models.SASRec, "fit", noted)
    for epochs in ("1", "2"):
        arguments = sasrec.parse_arguments(
            ["--quick", "--max-length", "4", "--epochs", epochs]
        )
        interactions = sasrec.load_interactions(arguments)
        split = keras_bft.data.leave_one_out(interactions.sequences())
        model = sasrec.make_model(False, 3, interactions.num_items, arguments)
        sasrec.train(model, 3, split, tmp_path, arguments)
    assert calls == [(0, 0, 1), (1, 1, 2)]
    assert "Continuing after epoch 1." in capsys.readouterr().out
    history = read_csv(tmp_path / "history.csv")
    assert [row["epoch"] for row in history] == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "negatives"), [("sampled", 2000), ("gbce", 256), ("bce", 1)]
)
def test_losses_have_their_usual_negatives(sasrec, name, negatives):
    loss = sasrec.make_loss(sasrec.parse_arguments(["--loss", name]))
    assert loss.num_negatives == negatives
    options = ["--loss", name, "--negatives", "7"]
    assert sasrec.make_loss(sasrec.parse_arguments(options)).num_negatives == 7


def test_full_softmax_takes_no_negatives(sasrec, capsys):
    loss = sasrec.make_loss(sasrec.parse_arguments([]))
    assert isinstance(loss, keras_bft.losses.FullSoftmax)
    with pytest.raises(SystemExit):
        sasrec.parse_arguments(["--negatives", "7"])
    assert "--negatives has no meaning" in capsys.readouterr().err


def test_what_is_given_beats_the_quick_settings(sasrec):
    arguments = sasrec.parse_arguments(["--quick", "--epochs", "9"])
    assert (arguments.epochs, arguments.dim) == (9, 8)


def test_reads_a_file_and_ranks_seen_items_when_asked(sasrec, tmp_path, capsys):
    data = tmp_path / "clicks.txt"
    rng = np.random.default_rng(0)
    data.write_text(
        "".join(
            f"{user} {' '.join(map(str, rng.integers(1, 9, size=6)))}\n"
            for user in range(1, 31)
        )
    )
    run_quick(
        sasrec,
        tmp_path / "out",
        *("--data", str(data), "--include-seen", "--epochs", "1"),
    )
    text = capsys.readouterr().out
    assert "30 targets, each ranked among all 8 items" in text
    assert "items of the history kept" in text


def test_the_form_of_the_filter_is_that_asked_for(sasrec):
    options = ["--no-carry-units", "--no-scale-embeddings", "--form", "light"]
    arguments = sasrec.parse_arguments(["--quick", *options])
    config = sasrec.make_model(True, 0, 9, arguments).get_config()
    expected = {"carry_units": False, "scale_embeddings": False}
    expected |= {"form": "light", "bayesian": True}
    assert {name: config[name] for name in expected} == expected
