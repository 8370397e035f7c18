"""Tables and pictures of the confidence of recommendations."""

import csv
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from confidence_study.answers import Answers
from confidence_study.measures import COMPARED
from confidence_study.measures import MEASURES
from confidence_study.measures import AllAnswers
from confidence_study.measures import interval
from confidence_study.measures import is_probability
from confidence_study.measures import measure
from confidence_study.measures import resampled
from keras_bft.diagnostics import plot_reliability
from keras_bft.diagnostics import plot_risk_coverage
from keras_bft.evaluation import reliability_curve
from keras_bft.evaluation import risk_coverage
from keras_bft.training import replacing
from study.report import markdown_table

BASELINE = "plain, temperature"
# Of the pictures, with the ensemble; more lines could not be told apart.
DRAWN = (
    "BFT, mean field",
    "BFT, mean field, fitted",
    "BFT, precision alone",
    "plain, temperature",
    "plain, MC dropout",
)
_HEADER = ("data", "method", "seed", "measure", "value", "low", "high")


def write_report(
    answers: Mapping[str, AllAnswers],
    repeated: Mapping[str, float],
    k: int,
    filter_seen: bool,
    resamples: int,
    output: Path,
) -> Path:
    """Writes `report.md`, `measures.csv` and two pictures of each data set.

    Args:
        answers: Of each data set, by method and seed.
        repeated: Of each data set, the share of targets that the history
            holds.
        k: Length of the lists.
        filter_seen: Whether items of the history were left out.
        resamples: Number of resamples of the intervals.
        output: Folder.

    Returns:
        The path of the report.
    """
    parts = [
        "# How sure a recommendation is",
        f"A hit is a list of {k} items, of the whole catalogue, that holds the "
        "test user's next item; items of the history are "
        f"{'left out' if filter_seen else 'kept'}. The confidence of a list "
        "is the probability of its items in a softmax over the catalogue; "
        "that of `precision alone` is the log-precision of the final state, "
        "of `max probability` the probability of the best item, and only "
        "their order is judged. Temperatures, and with `fitted` a factor of "
        "the variances, are fitted to the next items of validation users. A "
        "target that the history holds cannot be hit where that is left out, "
        "and no confidence counts with it.",
        "Means over seeds; intervals are 95 % bootstrap intervals over users "
        f"of that mean ({resamples:,} resamples, paired between methods) and "
        "do not hold the variation between seeds. AURC is the mean share of "
        "misses over all shares of users kept, the most confident first; its "
        "excess is over that of the best order, 0 whatever the hit rate. ECE "
        "has 15 bins.",
    ]
    rows: list[Sequence[object]] = []
    for data, given in answers.items():
        values = resampled(given, resamples)
        rows += _rows(data, given, values)
        seeds = max(len(by_seed) for by_seed in given.values())
        users = len(next(iter(given[BASELINE].values())).hits)
        parts += [
            f"## {data}, {users:,} users, {seeds} seeds",
            f"The history holds {100 * repeated[data]:.1f} % of the targets.",
            "### Measures",
            markdown_table(
                ["method", *MEASURES],
                [
                    [method, *(_cell(by_name.get(name)) for name in MEASURES)]
                    for method, by_name in values.items()
                ],
            ),
            f"### Difference from `{BASELINE}`",
            markdown_table(
                ["method", *COMPARED],
                [
                    [
                        method,
                        *(
                            _cell(_difference(by_name, values[BASELINE], name))
                            for name in COMPARED
                        ),
                    ]
                    for method, by_name in values.items()
                    if method != BASELINE
                ],
            ),
        ]
        for name in _draw(data, given, output):
            parts.append(f"![{name}]({name})")
    with replacing(output / "measures.csv") as part:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_HEADER)
            writer.writerows(rows)
    path = output / "report.md"
    with replacing(path) as part:
        part.write_text("\n\n".join(parts) + "\n")
    return path


def _rows(
    data: str, answers: AllAnswers, values: Mapping[str, Mapping[str, object]]
) -> Iterable[Sequence[object]]:
    """Lines of the CSV file: each seed, and the mean with its interval."""
    for method, by_seed in answers.items():
        for seed, given in by_seed.items():
            found = measure(
                given.confidence, given.hits, is_probability(method)
            )
            for name, value in found.items():
                yield data, method, seed, name, value, "", ""
        for name, drawn in values[method].items():
            yield data, method, "mean", name, *interval(drawn)


def _difference(
    method: Mapping[str, np.ndarray],
    baseline: Mapping[str, np.ndarray],
    name: str,
) -> np.ndarray | None:
    if name not in method:
        return None
    # Two infinite values have no difference.
    with np.errstate(invalid="ignore"):
        return method[name] - baseline[name]


def _cell(values: np.ndarray | None) -> str:
    if values is None:
        return "-"
    value, low, high = interval(values)
    return f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _draw(data: str, answers: AllAnswers, output: Path) -> list[str]:
    """Pictures of some methods, the answers of all seeds together."""
    chosen = [
        method
        for method in answers
        if method in DRAWN or method.startswith("plain, ensemble")
    ]
    # What one picture lacks comes last, so that both have the same colours.
    chosen.sort(key=lambda method: not is_probability(method))
    pooled = {
        method: Answers(
            np.concatenate([a.confidence for a in answers[method].values()]),
            np.concatenate([a.hits for a in answers[method].values()]),
        )
        for method in chosen
    }
    reliability = Figure(figsize=(4.8, 4.8), layout="constrained")
    plot_reliability(
        {
            method: reliability_curve(a.confidence, a.hits, 10, "mass")
            for method, a in pooled.items()
            if is_probability(method)
        },
        reliability.subplots(),
    )
    risk = Figure(figsize=(5.5, 4.5), layout="constrained")
    plot_risk_coverage(
        {
            method: risk_coverage(a.confidence, a.hits)
            for method, a in pooled.items()
        },
        risk.subplots(),
    )
    figures = {
        f"reliability-{data}.png": reliability,
        f"risk-coverage-{data}.png": risk,
    }
    for name, figure in figures.items():
        figure.axes[0].set_title(data, fontsize="medium")
        figure.savefig(output / name, dpi=150)
    return list(figures)
