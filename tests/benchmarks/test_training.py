"""The benchmark of training runs and measures what it says."""

import csv
import importlib
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training.py"


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)

    def run(*options):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
        importlib.import_module("training").main()

    return run


def test_quick_run_times_training_and_ranking(run, tmp_path, capsys):
    output = tmp_path / "training.csv"
    run("--quick", "--output", str(output))
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["contestant"]) for row in rows] == [
        (task, name)
        for task in ("bce", "ranking")
        for name in ("plain", "light", "full")
    ]
    for row in rows:
        seconds = float(row["seconds"])
        assert 0 < float(row["seconds_lowest"]) <= seconds
        assert row["turn_batches"] == row["batches"]
        for what in ("users", "targets"):
            rate = float(row[f"{what}_per_second"])
            assert rate == pytest.approx(int(row[what]) / seconds)
        assert row["speed_to_fastest_peer"] == ""
    assert float(rows[0]["time_to_plain"]) == 1
    trained, ranked = rows[0], rows[3]
    # The made-up users have eight items or more to learn from, or are cut.
    assert int(trained["users"]) < int(trained["targets"])
    assert int(trained["targets"]) <= 8 * int(trained["users"])
    assert ranked["targets"] == ranked["users"]
    assert "targets/s" in capsys.readouterr().out


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peers", "pmixer"], "needs --pmixer"),
        (["--peers", "pmixer", "--pmixer", ".", "--repeats", "20"], "below 20"),
        (["--data", "a.txt", "b.txt", "--max-length", "50"], "for 2 logs"),
    ],
)
def test_arguments_that_cannot_be_measured(run, options, message, capsys):
    with pytest.raises(SystemExit):
        run(*options)
    assert message in capsys.readouterr().err


@pytest.mark.any_backend
def test_a_checkout_does_a_turn_of_batches_at_a_time(run, tmp_path):
    # A program that says what pmixer's says, and when.
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    checkout.joinpath("main.py").write_text(
        "import sys, time\n"
        "assert '--maxlen=8' in sys.argv and '--norm_first' in sys.argv\n"
        "assert len(open('data/log.txt').readlines()) == 24\n"
        "step = 0\n"
        "while True:\n"
        "    time.sleep(0.01)\n"
        "    print(f'loss in epoch 1 iteration {step % 2}: 0.5')\n"
        "    open('steps', 'a').write('.')\n"
        "    step += 1\n"
    )
    log = tmp_path / "log.txt"
    log.write_text(
        "".join(f"{u} {i}\n" for u in (1, 2, 3) for i in range(1, 9))
    )
    settings = {
        "log": str(log),
        "pmixer": str(checkout),
        "batch_size": 2,
        "max_batches": 10**9,
        "max_length": 8,
        "embedding_dim": 4,
        "num_layers": 1,
        "num_heads": 1,
        "dropout": 0.0,
        "learning_rate": 0.1,
    }
    process = importlib.import_module("peers.process")
    folder = tmp_path / "work"
    folder.mkdir()
    peer = process.Peer("pmixer", settings, sys.executable, folder)
    try:
        epoch = peer.description
        assert (epoch["batches"], epoch["turn_batches"]) == (2, 2)
        assert (epoch["users"], epoch["targets"]) == (3, 15)
        for _ in range(3):
            peer.turn()
        # One batch to start, three turns of two, and what slips past a pause.
        steps = folder / "steps"
        done = steps.stat().st_size
        assert 6 <= done <= 12
        time.sleep(0.2)
        assert steps.stat().st_size == done
    finally:
        peer.close()
    with pytest.raises(RuntimeError, match="The peer pmixer ended with 1"):
        missing = {**settings, "pmixer": str(folder / "missing")}
        process.Peer("pmixer", missing, sys.executable, folder)
