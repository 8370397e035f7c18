r"""The paper's language-model section on any checkpoint: noisy fine-tuning.

    python benchmarks/noisy_sft.py --train train-v1.1.json \
        --evaluate dev-v1.1.json --output sft-study --minutes 60

Runs `examples/llama_sft.py` for each share of wrong answer tokens (`--noise`)
and each seed, and, with `--retrieved`, for each number of distracting passages
(`--distractors`), until the time is over; the same command goes on where it was
stopped. Arguments after `--` go to the example, such as `-- --lora-rank 0
--dtype mixed_bfloat16`. All arms of a run see the same rows in the same order,
and have the same learning rates to choose from, on held-out questions.
`--report-only` writes `report.md`, tables and pictures from what is there:
exact match and F1, means over seeds, with 95 % bootstrap intervals over
questions of the difference from standard fine-tuning; attention sinks before
and after; and how well precision tells replaced tokens.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from sft_study.distractors import write_retrieved
from sft_study.report import write_report

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama_sft.py"


def parse_arguments(
    argv: list[str] | None,
) -> tuple[argparse.Namespace, list[str]]:
    """Reads the command line, and what is for the example."""
    argv = sys.argv[1:] if argv is None else argv
    passed: list[str] = []
    if "--" in argv:
        place = argv.index("--")
        argv, passed = argv[:place], argv[place + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--train", type=Path, help="questions to train on")
    add("--evaluate", type=Path, help="questions to answer")
    add(
        "--retrieved",
        type=Path,
        nargs="+",
        help="questions with retrieved passages, and files with gold passages",
    )
    add("--noise", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    add("--distractors", type=int, nargs="+", default=[0, 2, 4])
    add("--seeds", type=int, default=2, help="number of seeds, from 0")
    add("--minutes", type=float, default=600.0, help="stop after them")
    add("--output", type=Path, default=Path("sft-study"))
    add("--report-only", action="store_true", help="run nothing")
    return parser.parse_args(argv), passed


def conditions(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Arguments of the example, by the name of what is varied."""
    found = {}
    for noise in arguments.noise:
        options = ["--noise", str(noise)]
        if arguments.train is not None:
            options += ["--train", str(arguments.train.absolute())]
        if arguments.evaluate is not None:
            options += ["--evaluate", str(arguments.evaluate.absolute())]
        found[f"noise-{noise:g}"] = options
    if arguments.retrieved:
        folder = arguments.output.absolute() / "retrieved"
        count = write_retrieved(
            arguments.retrieved, max(arguments.distractors), folder
        )
        print(f"{count[0]} and {count[1]} questions with passages, {folder}")
        for number in arguments.distractors:
            found[f"distractors-{number}"] = [
                *("--noise", "0", "--distractors", str(number)),
                *("--train", str(folder / "train.jsonl")),
                *("--evaluate", str(folder / "evaluate.jsonl")),
            ]
    return found


def run_all(arguments: argparse.Namespace, passed: list[str]) -> None:
    """Runs what is left, until the time is over."""
    end = time.monotonic() + 60.0 * arguments.minutes
    named = conditions(arguments)
    # Every condition once before any twice.
    for seed in range(arguments.seeds):
        for name, options in named.items():
            folder = arguments.output / name / f"seed{seed}"
            if (folder / "summary.csv").exists():
                continue
            left = end - time.monotonic()
            if left <= 0:
                print("The time is over; the same command goes on.")
                return
            folder.mkdir(parents=True, exist_ok=True)
            command = [
                *(sys.executable, str(EXAMPLE), "--seed", str(seed)),
                *("--output", str(folder), *options, *passed),
            ]
            print(" ".join(command), flush=True)
            try:
                subprocess.run(command, check=True, timeout=left)
            except subprocess.TimeoutExpired:
                print("The time is over; the same command goes on.")
                return


def main(argv: list[str] | None = None) -> None:
    """Runs and reports."""
    arguments, passed = parse_arguments(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    if not arguments.report_only:
        about = {
            "backend": os.environ.get("KERAS_BACKEND", "default"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "options": passed,
        }
        path = arguments.output / "about.json"
        path.write_text(json.dumps(about, indent=2))
        run_all(arguments, passed)
    print(f"Report: {write_report(arguments.output)}")


if __name__ == "__main__":
    main()
