"""Time and memory of kriging attention by length, dense and block by block.

    KERAS_BACKEND=jax python benchmarks/attention.py --output attention.csv

One head layer's sums, forward and backward, in float32 and causal: standard
attention, the light form's statistics (head variance, no gradient through
them) and the full form's (channel variance, with gradients), each from weights
that are all held (dense) and block by block. They take turns; a time's ratio is
the median of the turns' ratios to dense standard attention. Memory is what a
step holds besides inputs and results, see `overhead.py`. Dense attention stops
at `--longest-dense`.
"""

import argparse
import math
import statistics
from pathlib import Path

import keras
import numpy as np
from keras import ops

from keras_bft.ops import blockwise_estimate
from keras_bft.ops import kriging_estimate
from keras_bft.ops import kriging_observation
from keras_bft.ops import kriging_statistics
from keras_bft.ops import kriging_weights
from measuring.gradients import make_step
from measuring.turns import Row
from measuring.turns import ratios
from measuring.turns import take_turns
from measuring.turns import versions
from measuring.turns import write_rows

STATISTICS = {
    "standard": None,
    "light": {"variance": "head", "differentiate": False},
    "full": {"variance": "channel", "differentiate": True},
}


class Observation(keras.layers.Layer):
    """The observation, as a layer of query, key, value and log-precision."""

    def __init__(self, statistics: dict | None, blockwise: bool) -> None:
        super().__init__()
        self.statistics = statistics
        self.blockwise = blockwise
        self.built = True

    def call(
        self,
        query: object,
        key: object,
        value: object,
        log_precision: object,
        training: bool = False,
    ) -> object:
        precise = self.statistics is not None
        mean = log_precision[..., 0] if precise else None
        if self.blockwise and not precise:
            return blockwise_estimate(query, key, value, causal=True)
        repeated = ops.repeat(log_precision, key.shape[2], axis=-1)
        if self.blockwise:
            seen = kriging_observation(
                query,
                key,
                value,
                mean_log_precision=mean,
                value_log_precision=repeated,
                causal=True,
                **self.statistics,
            )
        else:
            position = np.arange(query.shape[1])
            mask = (position[:, None] >= position)[None]
            weights = kriging_weights(query, key, mean, mask)
            if not precise:
                return kriging_estimate(weights, value)
            seen = kriging_statistics(
                weights, value, repeated, mask, **self.statistics
            )
        return sum(ops.sum(x, axis=-1, keepdims=True) for x in seen[:3])


def measure(
    length: int, heads: int, channels: int, repeats: int, dense: bool
) -> list[Row]:
    """Times and bytes of each, over dense standard attention's."""
    rng = np.random.default_rng(0)
    shape = (1, length, heads, channels)
    inputs = [rng.standard_normal(shape, "float32") for _ in range(3)]
    inputs.append(rng.standard_normal((1, length, 1), "float32"))
    steps, sizes = {}, {}
    for name, options in STATISTICS.items():
        for kind in ("dense", "blockwise")[not dense :]:
            model = Observation(options, kind == "blockwise")
            step, size = make_step(model, inputs)
            step()
            steps[name, kind], sizes[name, kind] = step, size()
    seconds = take_turns(steps, repeats, warm_up=1)
    first = next(iter(seconds.values()))
    return [
        {
            "length": length,
            "statistics": name,
            "attention": kind,
            "milliseconds": 1000 * statistics.median(measured),
            **ratios(measured, first),
            "mib": sizes[name, kind] / 2**20,
        }
        for (name, kind), measured in seconds.items()
    ]


def exponents(rows: list[Row]) -> list[str]:
    """How time and memory grow between the two greatest lengths."""
    lines = []
    groups: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        contestant = row["statistics"], row["attention"]
        groups.setdefault(contestant, []).append(row)
    for (name, kind), group in groups.items():
        if len(group) < 2:
            continue
        before, last = group[-2:]
        growth = math.log(last["length"] / before["length"])
        found = [
            math.log(max(last[x], 1e-9) / max(before[x], 1e-9)) / growth
            for x in ("milliseconds", "mib")
        ]
        lines.append(
            f"{name:9} {kind:9} grows with length as T^{found[0]:.2f} in time "
            f"and T^{found[1]:.2f} in memory"
        )
    return lines


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[128, 512, 2048, 8192]
    )
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--longest-dense", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lengths, arguments.repeats = [4, 8], 1
        arguments.heads, arguments.channels = 2, 4

    print(versions())
    rows: list[Row] = []
    for length in arguments.lengths:
        for row in measure(
            length,
            arguments.heads,
            arguments.channels,
            arguments.repeats,
            length <= arguments.longest_dense,
        ):
            rows.append({"backend": keras.backend.backend(), **row})
            print(
                f"T {length:6} {row['statistics']:9} {row['attention']:9} "
                f"{row['milliseconds']:10.2f} ms, {row['ratio']:.2f} "
                f"({row['lowest']:.2f} to {row['highest']:.2f}); "
                f"{row['mib']:9.1f} MiB",
                flush=True,
            )
    print("\n".join(exponents(rows)))
    write_rows(rows, arguments.output)


if __name__ == "__main__":
    main()
