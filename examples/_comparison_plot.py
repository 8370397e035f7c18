"""Plot of two recommenders by how often the target item occurs."""

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keras_bft.evaluation import Ranking
from keras_bft.evaluation import Strata
from keras_bft.evaluation import paired_bootstrap

# Blue and vermilion of Okabe and Ito, told apart with any colour vision; marks
# and lines differ, too.
STYLES = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": "--"},
)


def plot_comparison(
    rankings: Mapping[str, Mapping[str, Ranking]],
    strata: Strata,
    histories: Mapping[str, Sequence[Sequence[Mapping[str, float]]]],
    path: Path,
) -> None:
    """Plots HR@10 by stratum and validation NDCG@10 by epoch.

    Args:
        rankings: For each model's name, its ranking by run.
        strata: Groups of the users ranked.
        histories: For each model's name and each run, the epochs' measures.
        path: Image file to write.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    by_stratum, training = figure.subplots(1, 2)
    for place, (name, runs) in enumerate(rankings.items()):
        hits = np.mean([run.hits(10) for run in runs.values()], axis=0)
        style = STYLES[place]
        label: str | None = name
        for group, (_, mask) in enumerate(strata.masks()):
            if not mask.any():
                continue
            # Against zeros the paired interval is that of one mean.
            interval = paired_bootstrap(np.zeros(mask.sum()), hits[mask])
            by_stratum.errorbar(
                group + 0.2 * (place - 0.5),
                interval.difference,
                yerr=[
                    [interval.difference - interval.low],
                    [interval.high - interval.difference],
                ],
                color=style["color"],
                marker=style["marker"],
                capsize=3,
                clip_on=False,
                label=label,
            )
            label = None
        for run_number, history in enumerate(histories[name]):
            epochs = [row["epoch"] for row in history]
            values = [row["val_ndcg@10"] for row in history]
            training.plot(
                epochs,
                values,
                color=style["color"],
                linestyle=style["linestyle"],
                linewidth=1.2,
                label=None if run_number else name,
            )
            best = int(np.argmax(values))
            training.plot(
                epochs[best],
                values[best],
                color=style["color"],
                marker=style["marker"],
            )
    by_stratum.set_xticks(
        range(len(strata.labels)),
        [text.replace(" ", "\n", 1) for text in strata.labels],
    )
    by_stratum.set_xlabel(f"quartile of users by {strata.name}")
    by_stratum.set_ylabel("test HR@10, with 95 % interval")
    by_stratum.set_ylim(bottom=0)
    training.set_xlabel("epoch (marks: best)")
    training.set_ylabel("validation NDCG@10")
    training.set_ylim(bottom=0)
    training.xaxis.get_major_locator().set_params(integer=True)
    for axes in (by_stratum, training):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
