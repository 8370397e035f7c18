"""What a peer's process and the benchmark say to each other.

The process is given its settings as an argument. It tells in a line of JSON
what an epoch of it is, and then does a turn for every line that it reads.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

SETTINGS = json.loads(sys.argv.pop())

# What the peers print must not come between the answers.
_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def answer(**values: Any) -> None:
    """Tells the benchmark."""
    print(json.dumps(values), file=_answers)


def wait() -> None:
    """Returns when the next turn begins; the last one ends the process."""
    if not sys.stdin.readline():
        raise SystemExit


def serve(turn: Callable[[], object]) -> None:
    """Does turns until there are no more."""
    while True:
        wait()
        turn()
        answer(done=True)


def read_sequences() -> list[list[int]]:
    """Items of each user, oldest first."""
    sequences: dict[str, list[int]] = {}
    with open(SETTINGS["log"], encoding="utf-8") as file:
        for line in file:
            user, item = line.split()
            sequences.setdefault(user, []).append(int(item))
    return list(sequences.values())


def num_batches(rows: int) -> tuple[int, int]:
    """Batches of an epoch, and those of a turn."""
    batches = -(-rows // SETTINGS["batch_size"])
    return batches, min(batches, SETTINGS["max_batches"])
