r"""Fine-tunes a Llama on answers of which some tokens are wrong, and compares.

    python examples/llama_sft.py --noise 0.1
    python examples/llama_sft.py --checkpoint TinyLlama-1.1B \
        --train train-v1.1.json --evaluate dev-v1.1.json --noise 0.3

A share of the tokens of the training answers is replaced by random ones. Four
ways of fine-tuning see the same rows in the same order: standard (`sft`), with
focal loss, with gated attention, and with the filter, whose strength is learned
(`bft`) or raised to 1 (`bft-raised`). Each then answers other questions, and
one table compares exact match and F1 with those of `sft`, with 95 % bootstrap
intervals over the questions. The folder given by `--output` receives the table
(`summary.csv`) and a folder for each arm, with its answers and history and with
figures of attention sinks, of the gain by the number of visible tokens, and of
how well precision tells the wrong tokens. The same command continues after the
last finished epoch. Without `--train` and `--evaluate` the questions are made
up.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_bft
from _sft_arguments import parse_arguments
from _sft_arms import load_model
from _sft_arms import prepare
from _sft_figures import write_figures
from _sft_questions import Rows
from _sft_questions import load_rows
from keras_bft.data import TokenDataset
from keras_bft.training import ResumableTraining
from keras_bft.training import TokensPerSecond
from keras_bft.training import claim_folder
from keras_bft.training import replacing
from keras_bft.training import write_history


def train(
    lm: Any,
    arm: str,
    learning_rate: float,
    rows: Rows,
    folder: Path,
    arguments: argparse.Namespace,
) -> dict[str, float]:
    """Trains what is left to train; returns held-out loss and tokens."""
    budget = arguments.tokens_per_batch
    dataset = TokenDataset(
        rows.train, rows.train_mask, budget, seed=arguments.seed
    )
    held_out = TokenDataset(
        rows.held_out, rows.held_out_mask, budget, shuffle=False
    )
    steps = arguments.epochs * len(dataset)
    callbacks = prepare(lm, arm, rows.train, steps, learning_rate, arguments)
    training = ResumableTraining(folder / "checkpoint.npz")
    dataset.epoch = training.epochs_done
    lm.fit(
        dataset,
        validation_data=held_out,
        verbose=1 if sys.stdout.isatty() else 2,
        shuffle=False,  # The dataset shuffles, by its own seed.
        initial_epoch=training.epochs_done,
        epochs=arguments.epochs,
        callbacks=[*callbacks, TokensPerSecond(dataset), training],
    )
    write_history(training.history, folder / "history.csv")
    tokens = sum(dataset.num_tokens(index) for index in range(len(dataset)))
    return {
        "held_out_loss": training.history[-1]["val_crossentropy"],
        "tokens": arguments.epochs * tokens,
    }


def answer(
    lm: Any, rows: Rows, folder: Path, arguments: argparse.Namespace
) -> None:
    """Answers the questions and writes `answers.csv`."""
    answers = keras_bft.evaluation.generate_answers(
        lm,
        rows.prompts,
        arguments.max_new_tokens,
        arguments.batch_size,
        verbose=int(sys.stdout.isatty()),
    )
    scores = keras_bft.metrics.score_answers(
        answers, [question.answers for question in rows.questions]
    )
    with replacing(folder / "answers.csv") as part:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("question", "answer", "right", "em", "f1"))
            for question, text, em, f1 in zip(
                rows.questions, answers, *scores, strict=True
            ):
                right = " | ".join(question.answers)
                writer.writerow((question.text, text, right, em, f1))


def run(arm: str, rows: Rows, arguments: argparse.Namespace) -> Path:
    """Trains an arm with each learning rate and answers with the best."""
    losses = {}
    for rate in arguments.learning_rate:
        folder = arguments.output / f"{arm}-lr{rate:g}"
        folder.mkdir(exist_ok=True)
        summary = folder / "summary.json"
        if not summary.exists():
            print(f"\n{arm}, learning rate {rate:g}")
            keras.utils.clear_session(free_memory=True)
            lm = load_model(arm, arguments)
            trained = train(lm, arm, rate, rows, folder, arguments)
            answer(lm, rows, folder, arguments)
            write_figures(lm, rows, folder)
            with replacing(summary) as part:
                part.write_text(json.dumps(trained))
            (folder / "checkpoint.npz").unlink()
        losses[folder] = json.loads(summary.read_text())["held_out_loss"]
    return min(losses, key=losses.__getitem__)


def scores_of(folder: Path) -> dict[str, np.ndarray]:
    """Scores of every question, from the folder of a run."""
    with (folder / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: np.array([float(row[name]) for row in rows])
        for name in ("em", "f1")
    }


def compare(folders: dict[str, Path], output: Path) -> None:
    """Prints and writes the table."""
    first = next(iter(folders))
    scores = {arm: scores_of(folder) for arm, folder in folders.items()}
    table = []
    for arm, folder in folders.items():
        row: dict[str, Any] = {"arm": arm, "run": folder.name}
        loss = json.loads((folder / "summary.json").read_text())
        row["held_out_loss"] = f"{loss['held_out_loss']:.4f}"
        for name, values in scores[arm].items():
            row[name] = f"{values.mean():.4f}"
            row[f"{name}_minus_{first}"] = ""
            if arm != first:
                row[f"{name}_minus_{first}"] = str(
                    keras_bft.evaluation.paired_bootstrap(
                        scores[first][name], values
                    )
                )
        table.append(row)
    with (output / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    widths = {
        name: max(len(name), *(len(row[name]) for row in table))
        for name in table[0]
    }
    print()
    for row in [dict(zip(widths, widths, strict=True)), *table]:
        print("  ".join(row[name].ljust(widths[name]) for name in widths))
    print(f"\nAnswers, histories and figures are in {output}.")


def main(argv: list[str] | None = None) -> None:
    """Trains, answers, compares, prints and saves."""
    arguments = parse_arguments(argv)
    settings = {
        name: value if isinstance(value, (int, float)) else str(value)
        for name, value in vars(arguments).items()
        if name not in ("output", "arms", "learning_rate", "quick")
    }
    settings |= {
        "backend": keras.backend.backend(),
        "keras_bft": keras_bft.__version__,
    }
    try:
        claim_folder(arguments.output, settings)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    lm = load_model("sft", arguments)
    rows = load_rows(lm, arguments)
    before = arguments.output / "checkpoint"
    if not before.exists():
        before.mkdir()
        write_figures(lm, rows, before)
    del lm
    folders = {arm: run(arm, rows, arguments) for arm in arguments.arms}
    compare(folders, arguments.output)


if __name__ == "__main__":
    main()
