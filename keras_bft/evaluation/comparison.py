"""Two models side by side, overall and by group of users."""

import csv
import dataclasses
import os

from keras_bft.evaluation.bootstrap import BootstrapInterval


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One measure of both models in one group of users.

    Args:
        metric: Name of the measure, such as `"hr@10"`.
        stratum: Name of the strata, `"all users"`, or `"each run"`.
        label: Label of the group within the strata, or of the run; empty for
            all users.
        num_users: Number of users in the group.
        first: Mean of the first model, `None` if the group has no users.
        second: Mean of the second model, `None` if the group has no users.
        interval: Difference `second - first` with its bootstrap interval,
            `None` if the group has no users.
    """

    metric: str
    stratum: str
    label: str
    num_users: int
    first: float | None = None
    second: float | None = None
    interval: BootstrapInterval | None = None


@dataclasses.dataclass(frozen=True)
class ComparisonTable:
    """Comparison of two models; `str` gives the text table.

    Args:
        names: Names of the first and the second model.
        protocol: One or two sentences on what was ranked and how.
        rows: One `ComparisonRow` for each measure and group.
    """

    names: tuple[str, str]
    protocol: str
    rows: tuple[ComparisonRow, ...]

    def __str__(self) -> str:
        label_width = max(
            [len(row.stratum) for row in self.rows]
            + [len(row.label) + 2 for row in self.rows]
        )
        widths = [max(7, len(name)) for name in self.names]
        lines = [self.protocol]
        metric = stratum = None
        for row in self.rows:
            if row.metric != metric:
                metric, stratum = row.metric, None
                names = "".join(
                    f"  {name:>{width}}"
                    for name, width in zip(self.names, widths, strict=True)
                )
                lines += [
                    "",
                    f"{metric.upper():<{label_width}}  {'users':>7}{names}"
                    f"  {self.names[1]} minus {self.names[0]}",
                ]
            if row.stratum != stratum:
                stratum = row.stratum
                if row.label:
                    lines.append(stratum)
            label = f"  {row.label}" if row.label else row.stratum
            line = f"{label:<{label_width}}  {row.num_users:>7,}"
            for value, width in zip(
                (row.first, row.second), widths, strict=True
            ):
                shown = "-" if value is None else f"{value:.4f}"
                line += f"  {shown:>{width}}"
            lines.append(f"{line}  {row.interval or '-'}")
        return "\n".join(lines)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one line for each measure and group, with a header.

        Cells of a group without users are empty.

        Args:
            path: File to write. An existing file is replaced.
        """
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(
                ("metric", "stratum", "label", "num_users", *self.names)
                + ("difference", "low", "high", "confidence")
            )
            for row in self.rows:
                cells = [row.metric, row.stratum, row.label, row.num_users]
                interval = row.interval
                if interval is None:
                    writer.writerow([*cells, "", "", "", "", "", ""])
                else:
                    writer.writerow(
                        [*cells, row.first, row.second, interval.difference]
                        + [interval.low, interval.high, interval.confidence]
                    )
