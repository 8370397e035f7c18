"""Training and ranking of SASRec, here and in other implementations.

    KERAS_BACKEND=jax python benchmarks/training.py \
        --data beauty.txt.gz ml-1m.txt.gz --max-length 50 200 \
        --peers pmixer recbole rectools --python peers/bin/python \
        --pmixer SASRec.pytorch --output training.csv

Plain and Bayesian SASRec of this library and the SASRec of
pmixer/SASRec.pytorch (a checkout, `--pmixer`), RecBole and RecTools (installed
where `--python` points) have the same width, length, rows in a batch, layers,
heads, dropout and learning rate, and train on the same 5-core log less each
user's last two items. Each peer runs in a process of its own; contestants take
turns, an epoch each. `--max-batches` ends a peer's turn after that many
batches, and an epoch is then reckoned from them. Figures are medians and
ranges over turns, after one that is left out.

Tasks: "bce" is binary cross-entropy with one negative (RecBole: BPR with one
negative), "softmax" is cross-entropy over the whole catalogue (pmixer has
none), "ranking" ranks every user's last item among all (RecBole alone, of
whose metrics the first ten count; here each rank is known).

What cannot be made equal: RecBole trains on every prefix as a row of its own,
so its batch of as many rows has fewer targets, and it does not cut a user to
the newest items; see its targets in the table, and compare targets a second.
pmixer never draws a negative from the user's own items, RecTools may draw the
target itself. RecBole's layers are post-norm and RecTools' add their attention
to its normed query. All peers pad to the full length.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import keras_bft
from measuring.turns import Row
from measuring.turns import ratios
from measuring.turns import take_turns
from measuring.turns import versions
from measuring.turns import write_rows
from peers.here import make_contestants
from peers.process import Peer

TASKS = {
    "bce": ("pmixer", "recbole", "rectools"),
    "softmax": ("recbole", "rectools"),
    "ranking": ("recbole",),
}
# After so many epochs pmixer's program evaluates, which no turn should hold.
PMIXER_EPOCHS = 20


def measure(
    interactions: keras_bft.data.Interactions,
    settings: dict,
    arguments: argparse.Namespace,
    folder: Path,
) -> list[Row]:
    """One task on one log: a row for each contestant."""
    turns, own = make_contestants(interactions, settings)
    epochs = dict.fromkeys(turns, own)
    peers: list[Peer] = []
    try:
        for name in TASKS[settings["task"]]:
            if name in arguments.peers:
                peer = Peer(name, settings, arguments.python, folder)
                peers.append(peer)
                turns[name], epochs[name] = peer.turn, peer.description
                print(f"{name}: {peer.description['versions']}")
        measured = take_turns(turns, arguments.repeats)
    finally:
        for peer in peers:
            peer.close()

    seconds = {
        name: [
            s * epochs[name]["batches"] / epochs[name]["turn_batches"]
            for s in measured[name]
        ]
        for name in turns
    }
    per_target = {
        name: [s / epochs[name]["targets"] for s in seconds[name]]
        for name in turns
    }
    fastest = min(
        (statistics.median(per_target[peer.name]) for peer in peers),
        default=None,
    )
    rows: list[Row] = []
    for name, epoch in epochs.items():
        median = statistics.median(seconds[name])
        to_plain = ratios(per_target[name], per_target["plain"])
        rows.append(
            {
                "task": settings["task"],
                "contestant": name,
                **{k: v for k, v in epoch.items() if k != "versions"},
                "seconds": median,
                "seconds_lowest": min(seconds[name]),
                "seconds_highest": max(seconds[name]),
                "users_per_second": epoch["users"] / median,
                "targets_per_second": epoch["targets"] / median,
                "time_to_plain": to_plain["ratio"],
                "time_to_plain_lowest": to_plain["lowest"],
                "time_to_plain_highest": to_plain["highest"],
                "speed_to_fastest_peer": fastest
                and fastest * epoch["targets"] / median,
            }
        )
    return rows


def show(rows: list[Row]) -> None:
    """Prints the rows of one task."""
    print(
        f"{'contestant':<12}{'s/epoch':>9}{'range':>18}{'targets':>10}"
        f"{'targets/s':>11}{'users/s':>9}{'time/plain':>12}"
        f"{'range':>14}{'speed/peer':>12}"
    )
    for row in rows:
        seconds = "{seconds_lowest:.2f} to {seconds_highest:.2f}"
        to_plain = "{time_to_plain_lowest:.2f}-{time_to_plain_highest:.2f}"
        to_peer = row["speed_to_fastest_peer"]
        print(
            f"{row['contestant']:<12}{row['seconds']:>9.2f}"
            f"{seconds.format(**row):>18}{row['targets']:>10,}"
            f"{row['targets_per_second']:>11,.0f}"
            f"{row['users_per_second']:>9,.0f}{row['time_to_plain']:>12.2f}"
            f"{to_plain.format(**row):>14}"
            + (f"{to_peer:>12.2f}" if to_peer else "")
        )


def parse() -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", help="else made up")
    parser.add_argument(
        "--max-length", type=int, nargs="+", help="of each log; else 50"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=["bce", "softmax"]
    )
    parser.add_argument("--peers", nargs="+", choices=TASKS["bce"], default=[])
    parser.add_argument("--python", default=sys.executable, help="of the peers")
    parser.add_argument("--pmixer", type=Path, help="checkout of pmixer's")
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--num-heads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rank-batch-size", type=int, default=256)
    parser.add_argument(
        "--max-batches", type=int, default=10**9, help="of a peer's turn"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    logs = len(arguments.data or [None])
    arguments.max_length = arguments.max_length or [50] * logs
    if len(arguments.max_length) != logs:
        parser.error(
            "--max-length needs one length for each log. Received: "
            f"{arguments.max_length} for {logs} logs"
        )
    if "pmixer" in arguments.peers and arguments.pmixer is None:
        parser.error("--peers pmixer needs --pmixer, the folder of a checkout")
    if "pmixer" in arguments.peers and arguments.repeats >= PMIXER_EPOCHS:
        parser.error(
            f"--repeats must be below {PMIXER_EPOCHS} with pmixer. Received: "
            f"{arguments.repeats}"
        )
    if arguments.quick:
        arguments.tasks = ["bce", "ranking"]
        arguments.max_length = [8]
        arguments.embedding_dim, arguments.batch_size = 8, 32
        arguments.num_layers = arguments.repeats = 1
    return arguments


def main() -> None:
    """Measures, prints and writes."""
    arguments = parse()
    print(versions())
    rows: list[Row] = []
    for path, max_length in zip(
        arguments.data or [None], arguments.max_length, strict=True
    ):
        if path:
            interactions = keras_bft.data.read_interactions(path)
        else:
            size = {"num_users": 60, "num_items": 30} if arguments.quick else {}
            made_up = keras_bft.data.synthetic_interactions(**size)
            interactions = made_up.interactions
        interactions = interactions.k_core(5)
        name = path.name.partition(".")[0] if path else "synthetic"
        for task in arguments.tasks:
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder, "log.txt")
                log.write_text(
                    "".join(
                        f"{user} {item}\n"
                        for user, items in enumerate(
                            interactions.sequences(), start=1
                        )
                        for item in items
                    )
                )
                settings = {
                    key: value
                    for key, value in vars(arguments).items()
                    if isinstance(value, (int, float))
                }
                settings |= {
                    "task": task,
                    "max_length": max_length,
                    "log": str(log),
                    "pmixer": str(
                        arguments.pmixer and arguments.pmixer.resolve()
                    ),
                }
                measured = measure(
                    interactions, settings, arguments, Path(folder)
                )
            print(f"\n{name}, {task}: {interactions}, length {max_length}")
            show(measured)
            rows += [{"data": name, **row} for row in measured]
    write_rows(rows, arguments.output)


if __name__ == "__main__":
    main()
