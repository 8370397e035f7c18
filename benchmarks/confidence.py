r"""How sure is a recommendation, and does it come true? On any data.

    KERAS_BACKEND=jax python benchmarks/confidence.py --data clicks.csv \
        --seeds 3 --output confidence

Trains SASRec with and without the filter and compares, on the test users'
lists of 10 items, what each way of stating a confidence is worth: the filter's
precision (mean-field logits, or alone as a score), the probability of the list
or of its best item, temperature scaling, MC dropout and an ensemble of plain
models. The folder given by `--output` receives the models, the answers, and

    report.md                        tables with bootstrap intervals over users
    measures.csv                     the same, and of each seed
    reliability-*, risk-coverage-*   pictures

Killed at any point, the same command continues at the last finished epoch.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from confidence_study.answers import Answers
from confidence_study.answers import Users
from confidence_study.answers import answer
from confidence_study.answers import load
from confidence_study.answers import save
from confidence_study.methods import of_ensemble
from confidence_study.methods import of_filter
from confidence_study.methods import of_plain
from confidence_study.models import trained
from confidence_study.report import write_report
from keras_bft.training import claim_folder
from study.runs import Dataset
from study.settings import QUICK
from study.settings import Settings
from study.settings import make_grid
from study.settings import make_parser
from study.settings import read
from study.variants import parse_variant


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = make_parser(
        "Compares ways to say how sure a recommendation is, on any data."
    )
    add = parser.add_argument
    add("--k", type=int, default=10, help="length of the lists")
    add("--members", type=int, default=3, help="plain models of the ensemble")
    add("--samples", type=int, default=20, help="passes of MC dropout")
    add(
        "--fitted-users",
        type=int,
        default=2048,
        help="validation users that temperatures are fitted to, at most",
    )
    add("--resamples", type=int, default=1000, help="of users, for intervals")
    parser.set_defaults(
        models=["sasrec:unscaled", "bft-sasrec:no-units:unscaled"],
        schedule="cosine",
        epochs=40,
        learning_rate=[5e-3],
        dropout=[0.3],
        seeds=3,
        output=Path("confidence"),
    )
    quick = {**QUICK, "epochs": 8, "seeds": 1, "samples": 2, "resamples": 20}
    arguments = read(parser, argv, quick)
    kinds = [parse_variant(name)[:2] for name in arguments.models]
    if sorted(kinds) != [(False, "sasrec"), (True, "sasrec")]:
        parser.error("--models takes a plain SASRec and one with the filter")
    if len(make_grid(arguments)) != 1:
        parser.error("one learning rate, dropout and weight decay each")
    return arguments


def some(users: Users, number: int) -> Users:
    """At most so many of the users, the same each time."""
    chosen = np.random.default_rng(0).permutation(len(users.targets))[:number]
    return users.where(chosen)


def run(
    name: str, data: Dataset, settings: Settings, arguments: argparse.Namespace
) -> dict[str, dict[int, Answers]]:
    """Answers of all methods of a model, by method and seed."""
    split = data.split
    test = Users(split.test_histories, split.test_targets)
    validation = some(
        Users(split.validation_histories, split.validation_targets),
        arguments.fitted_users,
    )
    k, filter_seen = arguments.k, settings.filter_seen
    bayesian = parse_variant(name)[0]
    asked: dict[str, Any] = {"k": k, "fitted_users": arguments.fitted_users}
    if not bayesian:
        asked["samples"] = arguments.samples
    found: dict[str, dict[int, Answers]] = {}
    members = []
    number = arguments.seeds
    if not bayesian:
        number = max(number, arguments.members)
    for seed in range(number):
        model, folder = trained(name, data, seed, settings, arguments.output)
        members.append(model)
        if seed >= arguments.seeds:
            continue
        claim_folder(folder / "answers", asked)
        path = folder / "answers" / "answers.npz"
        if not path.exists():
            if bayesian:
                method = of_filter(model, validation, k, filter_seen)
            else:
                method = of_plain(
                    model, validation, k, filter_seen, arguments.samples
                )
            save(answer(test, method, "Asking all methods."), path)
        for method_name, answers in load(path).items():
            found.setdefault(method_name, {})[seed] = answers
    if not bayesian:
        members = members[: arguments.members]
        folder = folder.parent / f"ensemble{len(members)}"
        claim_folder(folder, {"k": k})
        path = folder / "answers.npz"
        if not path.exists():
            method = of_ensemble(members, k, filter_seen)
            save(answer(test, method, "Asking the ensemble."), path)
        for method_name, answers in load(path).items():
            found[method_name] = {0: answers}
    return found


def main(argv: list[str] | None = None) -> None:
    """Trains what is missing, asks all methods and writes the report."""
    arguments = parse_arguments(argv)
    [settings] = make_grid(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    answers, repeated = {}, {}
    for path in list(arguments.data) or [None]:
        data = Dataset.read(path, arguments.quick)
        print(f"{data.name}: {data.interactions}.")
        repeated[data.name] = float(
            np.mean(
                [
                    target in history
                    for target, history in zip(
                        data.split.test_targets,
                        data.split.test_histories,
                        strict=True,
                    )
                ]
            )
        )
        # The filter first.
        names = sorted(arguments.models, key=lambda n: not parse_variant(n)[0])
        answers[data.name] = {
            method: by_seed
            for name in names
            for method, by_seed in run(name, data, settings, arguments).items()
        }
    report = write_report(
        answers,
        repeated,
        arguments.k,
        arguments.filter_seen,
        arguments.resamples,
        arguments.output,
    )
    print(f"Report: {report}")


if __name__ == "__main__":
    main()
