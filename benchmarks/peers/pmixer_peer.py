"""pmixer/SASRec.pytorch: its own program, paused when it has no turn.

Its loss is binary cross-entropy with one negative that the user has not
clicked on. Three processes of it make batches and have no turn either while
the program has none, so a turn begins with what their queue holds.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import torch

from peers.worker import SETTINGS
from peers.worker import answer
from peers.worker import num_batches
from peers.worker import read_sequences
from peers.worker import serve


def main() -> None:
    """Starts the program and lets it run a turn at a time."""
    found = sorted(Path(SETTINGS["pmixer"]).resolve().rglob("main.py"))
    if not found:
        raise SystemExit(f"No main.py in {SETTINGS['pmixer']}")
    sequences = read_sequences()
    batches, turn_batches = num_batches(len(sequences))
    os.makedirs("data", exist_ok=True)
    shutil.copy(SETTINGS["log"], "data/log.txt")
    options = {
        "dataset": "log",
        "train_dir": "out",
        "device": "cpu",
        "batch_size": SETTINGS["batch_size"],
        "maxlen": SETTINGS["max_length"],
        "hidden_units": SETTINGS["embedding_dim"],
        "num_blocks": SETTINGS["num_layers"],
        "num_heads": SETTINGS["num_heads"],
        "dropout_rate": SETTINGS["dropout"],
        "lr": SETTINGS["learning_rate"],
    }
    process = subprocess.Popen(
        [sys.executable, "-u", str(found[0]), "--norm_first"]
        + [f"--{name}={value}" for name, value in options.items()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    steps = re.compile(r"loss in epoch \d+ iteration (\d+)")

    def next_step() -> None:
        """Returns when the program has trained on one more batch."""
        for line in process.stdout:
            match = steps.match(line)
            if match:
                if int(match[1]) >= batches:
                    raise RuntimeError(
                        f"An epoch has more than {batches} batches: {line}"
                    )
                return
        raise RuntimeError(f"{found[0]} ended with {process.wait()}")

    def turn() -> None:
        os.killpg(process.pid, signal.SIGCONT)
        for _ in range(turn_batches):
            next_step()
        os.killpg(process.pid, signal.SIGSTOP)

    # A program that stands still would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        next_step()
        os.killpg(process.pid, signal.SIGSTOP)
        lengths = [len(items) - 2 for items in sequences]
        answer(
            batches=batches,
            turn_batches=turn_batches,
            users=len(sequences),
            targets=sum(min(n - 1, SETTINGS["max_length"]) for n in lengths),
            versions=f"torch {torch.__version__}",
        )
        serve(turn)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    main()
