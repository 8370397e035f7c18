"""Finished runs, read back from their folders."""

import csv
import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bft.evaluation import ComparisonTable
from keras_bft.evaluation import Ranking
from keras_bft.evaluation import Strata
from keras_bft.evaluation import comparison_table
from keras_bft.evaluation import quartile_strata
from keras_bft.training import replacing
from study.variants import plain_counterpart

METRICS = ("hr@5", "hr@10", "ndcg@5", "ndcg@10")


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One finished run."""

    folder: Path
    settings: Mapping[str, Any]
    summary: Mapping[str, float]

    @functools.cached_property
    def ranking(self) -> Ranking:
        """Ranks of the test users."""
        return Ranking.from_csv(self.folder / "ranks.csv.gz")

    def table(self, name: str) -> list[dict[str, str]]:
        """Rows of a CSV file of the run, none if there is no such file."""
        path = self.folder / name
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """All runs on one data set with one loss.

    Attributes:
        data: Name of the data set.
        loss: Name of the loss.
        models: For each model's name, its runs by seed, with the settings that
            validated best with the first seed.
        item_counts: Training count of each item, by item code.
    """

    data: str
    loss: str
    models: Mapping[str, Mapping[int, Run]]
    item_counts: np.ndarray

    @property
    def title(self) -> str:
        """Data set and loss."""
        return f"{self.data}, {self.loss} loss"

    def means(
        self, name: str, file: str, column: str
    ) -> dict[str, dict[str, float]]:
        """Means over a model's runs by value and group, as the file orders."""
        cells: dict[str, dict[str, list[float]]] = {}
        for run in self.models[name].values():
            for row in run.table(file):
                groups = cells.setdefault(row["value"], {})
                groups.setdefault(row[column], []).append(float(row["mean"]))
        return {
            value: {group: float(np.mean(x)) for group, x in groups.items()}
            for value, groups in cells.items()
        }

    def pairs(self) -> list[tuple[str, str]]:
        """Names of plain models and their Bayesian counterparts."""
        pairs = []
        for name in self.models:
            plain = plain_counterpart(name)
            if plain != name and plain in self.models:
                pairs.append((plain, name))
        return pairs

    def common(self, first: str, second: str) -> tuple[Any, Any]:
        """Rankings of two models by seed, of the seeds that both have."""
        seeds = sorted(set(self.models[first]) & set(self.models[second]))
        rankings = [
            {f"seed {s}": self.models[name][s].ranking for s in seeds}
            for name in (first, second)
        ]
        return rankings[0], rankings[1]

    def strata(self) -> list[Strata]:
        """Quartiles of the test users, by target and by history."""
        ranking = next(iter(next(iter(self.models.values())).values())).ranking
        return [
            quartile_strata(
                self.item_counts[ranking.targets], "target's training count"
            ),
            quartile_strata(ranking.history_lengths, "history length"),
        ]

    @functools.lru_cache  # noqa: B019, a study lives as long as the program
    def compare(self, first: str, second: str) -> ComparisonTable:
        """Compares two models over their common seeds."""
        return comparison_table(
            *self.common(first, second),
            names=(first, second),
            strata=self.strata(),
            metrics=METRICS,
        )


def save_item_counts(counts: np.ndarray, folder: Path) -> None:
    """Keeps the training counts that the report groups users by."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "item_counts.csv.gz") as part:
        np.savetxt(part, counts, fmt="%d")


def load_studies(output: Path) -> list[Study]:
    """Reads every finished run below a folder."""
    found: dict[tuple[str, str], dict[str, dict[str, dict[int, Run]]]] = {}
    for path in sorted(output.glob("*/*/*/seed*/summary.json")):
        settings = json.loads((path.parent / "settings.json").read_text())
        run = Run(path.parent, settings, json.loads(path.read_text()))
        data = path.parents[3].name
        study = found.setdefault((data, settings["loss"]), {})
        points = study.setdefault(settings["model"], {})
        runs = points.setdefault(path.parents[1].name, {})
        runs[settings["seed"]] = run
    return [
        Study(
            data,
            loss,
            {name: _best(points) for name, points in sorted(models.items())},
            np.loadtxt(output / data / "item_counts.csv.gz", dtype=np.int64),
        )
        for (data, loss), models in sorted(found.items())
    ]


def _best(points: dict[str, dict[int, Run]]) -> dict[int, Run]:
    """Runs of the settings that validate best with seed 0."""
    tried = {k: runs for k, runs in points.items() if 0 in runs} or points

    def validation(runs: dict[int, Run]) -> float:
        return runs[min(runs)].summary["val_ndcg@10"]

    return max(tried.values(), key=validation)
