"""The report of a study, in Markdown."""

import csv
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_bft.evaluation import ComparisonRow
from keras_bft.training import replacing
from study.figures import write_figures
from study.results import METRICS
from study.results import Run
from study.results import Study
from study.results import load_studies
from study.variants import ablated_from


def write_report(output: Path) -> Path:
    """Writes `report.md`, `comparisons.csv` and the figures.

    Args:
        output: Folder of the study.

    Returns:
        The path of the report.

    Raises:
        ValueError: If no run has finished.
    """
    studies = load_studies(output)
    if not studies:
        raise ValueError(
            f"No run has finished. Received: output={str(output)!r}"
        )
    figures = write_figures(studies, output)
    filtered = _first_run(studies[0]).ranking.filter_seen
    parts = [
        "# Recommendation with and without the filter",
        "Leave-one-out, each test target ranked among all items, items of the "
        f"history {'filtered' if filtered else 'kept'}. A model's "
        "settings are those of the grid that validate best with seed 0, by "
        "NDCG@10. Runs keep their best epoch by the same, those with `cosine` "
        "in their settings the last. Values are means over seeds. "
        "Intervals are 95 % paired bootstrap intervals over users of the mean "
        "over seeds; they do not hold the variation between seeds.",
    ]
    for study in studies:
        parts += [f"## {study.title}", *_study_parts(study)]
    parts += [f"![{name}]({name})" for name in figures]
    path = output / "report.md"
    with replacing(path) as part:
        part.write_text("\n\n".join(parts) + "\n")
    _write_comparisons(studies, output / "comparisons.csv")
    return path


def _first_run(study: Study) -> Run:
    return next(iter(next(iter(study.models.values())).values()))


def _study_parts(study: Study) -> list[str]:
    parts = [
        "### Overall",
        markdown_table(
            ["model", "settings", "seeds", *map(str.upper, METRICS)]
            + ["validation NDCG@10", "best epoch", "s/epoch"],
            [_overall_row(name, runs) for name, runs in study.models.items()],
        ),
    ]
    for first, second in study.pairs():
        table = study.compare(first, second)
        rows = [row for row in table.rows if row.metric in METRICS]
        parts.append(f"### {second} minus {first}")
        parts.append(
            markdown_table(
                ["users", "number", "measure", first, second]
                + ["difference", "relative"],
                [
                    _difference_row(row)
                    for row in rows
                    if row.stratum in ("all users", "each run")
                    or row.metric in ("hr@10", "ndcg@10")
                ],
            )
        )
    parts += _means(
        study,
        "mechanism.csv",
        "quartile",
        "Mechanism of {}, by the item's training count",
        "mean over tokens",
    )
    parts += _ablations(study)
    parts += _means(
        study,
        "context.csv",
        "visible",
        "{}: the newest item, by visible items",
        "mean",
    )
    return parts


def _overall_row(name: str, runs: Mapping[int, Run]) -> list[str]:
    values = [run.summary for run in runs.values()]

    def mean(key: str, digits: int = 4) -> str:
        return f"{np.mean([v[key] for v in values]):.{digits}f}"

    label = next(iter(runs.values())).folder.parent.name
    return [
        name,
        label,
        str(len(runs)),
        *(mean(f"test_{metric}") for metric in METRICS),
        mean("val_ndcg@10"),
        mean("best_epoch", 0),
        mean("seconds_per_epoch", 1),
    ]


def _difference_row(row: ComparisonRow) -> list[str]:
    who = f"{row.stratum}: {row.label}" if row.label else row.stratum
    cells = [who, f"{row.num_users:,}", row.metric.upper()]
    if row.interval is None or row.first is None or row.second is None:
        return [*cells, "-", "-", "-", "-"]
    relative = "-"
    if row.first:
        relative = f"{100 * row.interval.difference / row.first:+.1f} %"
    return [
        *cells,
        f"{row.first:.4f}",
        f"{row.second:.4f}",
        str(row.interval),
        relative,
    ]


def _means(
    study: Study, file: str, column: str, title: str, first: str
) -> list[str]:
    """A table for each model with such a file: values by group."""
    parts = []
    for name in study.models:
        means = study.means(name, file, column)
        if not means:
            continue
        groups = list(next(iter(means.values())))
        rows = [
            [value, *(f"{by_group[group]:.3f}" for group in groups)]
            for value, by_group in means.items()
        ]
        parts.append(f"### {title.format(name)}")
        parts.append(markdown_table([first, *groups], rows))
    return parts


def _ablations(study: Study) -> list[str]:
    changed: dict[str, list[tuple[str, str]]] = {}
    for name in study.models:
        for part, base in ablated_from(name):
            if base in study.models:
                changed.setdefault(base, []).append((part, name))
    header = ["changed", "HR@10", "difference", "NDCG@10", "difference"]
    header += ["HR@10, rare quarter", "difference"]
    parts = []
    for base, names in changed.items():
        rows = [_ablation_row(study, base, part, name) for part, name in names]
        parts.append(f"### {base} with one thing changed")
        parts.append(markdown_table(header, rows))
    return parts


def _ablation_row(study: Study, base: str, part: str, name: str) -> list[str]:
    table = study.compare(base, name)
    chosen = {(r.metric, r.label): r for r in table.rows if r.interval}
    rare = study.strata()[0].labels[0]
    row = [part]
    for key in (("hr@10", ""), ("ndcg@10", ""), ("hr@10", rare)):
        found = chosen.get(key)
        row += ["-", "-"]
        if found is not None and found.second is not None:
            row[-2:] = [f"{found.second:.4f}", str(found.interval)]
    return row


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _write_comparisons(studies: list[Study], path: Path) -> None:
    with replacing(path) as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("data", "loss", "first", "second", "metric", "stratum", "label")
            + ("num_users", "first_mean", "second_mean", "difference")
            + ("low", "high")
        )
        for study in studies:
            for first, second in study.pairs():
                for row in study.compare(first, second).rows:
                    if row.interval is None:
                        continue
                    interval = row.interval
                    writer.writerow(
                        (study.data, study.loss, first, second, row.metric)
                        + (row.stratum, row.label, row.num_users)
                        + (row.first, row.second, interval.difference)
                        + (interval.low, interval.high)
                    )
