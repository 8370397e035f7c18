"""Time and memory of kriging attention by length, dense and block by block.

    KERAS_BACKEND=jax python benchmarks/attention.py --output attention.csv

One head layer's sums, forward and backward, in float32 and causal: standard
attention, the light form's statistics (head variance, no gradient through
them) and the full form's (channel variance, with gradients), each from weights
that are all held (dense) and block by block. They take turns; a time's ratio is
the median of the turns' ratios to dense standard attention. Memory is what a
step holds besides inputs and results, see `overhead.py`. Dense attention stops
at `--longest-dense`.

On a GPU, `attention="kernel"` comes last, in bfloat16 at 2,048 positions: its
ratios are to the vendor's fused attention, which sums no statistics.
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
from keras_bft.ops._gpu.fused_moments import is_on_gpu
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

    def __init__(
        self, statistics: dict | None, kind: str, dtype: str = "float32"
    ) -> None:
        super().__init__(dtype=dtype, autocast=False)
        self.statistics = statistics
        self.kind = kind
        self.built = True

    def call(
        self,
        query: object,
        key: object,
        value: object,
        log_precision: object,
        training: bool = False,
    ) -> object:
        query, key, value = (
            ops.cast(x, self.compute_dtype) for x in (query, key, value)
        )
        if self.kind == "vendor":
            return ops.dot_product_attention(
                query, key, value, is_causal=True, flash_attention=True
            )
        precise = self.statistics is not None
        mean = log_precision[..., 0] if precise else None
        options = {"causal": True, "kernel": self.kind == "kernel"}
        if self.kind != "dense" and not precise:
            return blockwise_estimate(query, key, value, **options)
        repeated = ops.repeat(log_precision, key.shape[2], axis=-1)
        if self.kind != "dense":
            seen = kriging_observation(
                query,
                key,
                value,
                mean_log_precision=mean,
                value_log_precision=repeated,
                **options,
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
    kinds = ("dense", "blockwise")[not dense :]
    models = {
        (name, kind): Observation(options, kind)
        for name, options in STATISTICS.items()
        for kind in kinds
    }
    return compare(models, (1, length, heads, channels), repeats)


def measure_kernels(heads: int, channels: int, repeats: int) -> list[Row]:
    """Times and bytes of the fused kernels, over the vendor's attention's."""
    models = {("standard", "vendor"): Observation(None, "vendor", "bfloat16")}
    for name, options in STATISTICS.items():
        for kind in ("blockwise", "kernel"):
            models[name, kind] = Observation(options, kind, "bfloat16")
    return compare(models, (8, 2048, heads, channels), repeats)


def compare(
    models: dict[tuple[str, str], Observation],
    shape: tuple[int, int, int, int],
    repeats: int,
) -> list[Row]:
    """Times and bytes of each model, over the first one's."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, "float32") for _ in range(3)]
    inputs.append(rng.standard_normal((*shape[:2], 1), "float32"))
    steps, sizes = {}, {}
    for contestant, model in models.items():
        step, size = make_step(model, inputs)
        step()
        steps[contestant], sizes[contestant] = step, size()
    seconds = take_turns(steps, repeats, warm_up=1)
    first = next(iter(seconds.values()))
    return [
        {
            "length": shape[1],
            "statistics": name,
            "attention": kind,
            "milliseconds": 1000 * statistics.median(measured),
            **ratios(measured, first),
            "mib": sizes[name, kind] / 2**20,
        }
        for (name, kind), measured in seconds.items()
    ]


def show(row: Row) -> None:
    """Prints a row."""
    print(
        f"T {row['length']:6} {row['statistics']:9} {row['attention']:9} "
        f"{row['milliseconds']:10.2f} ms, {row['ratio']:.2f} "
        f"({row['lowest']:.2f} to {row['highest']:.2f}); "
        f"{row['mib']:9.1f} MiB",
        flush=True,
    )


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
            show(row)
    print("\n".join(exponents(rows)))
    if is_on_gpu(ops.zeros(1)):
        for row in measure_kernels(
            arguments.heads, arguments.channels, arguments.repeats
        ):
            rows.append({"backend": keras.backend.backend(), **row})
            show(row)
    write_rows(rows, arguments.output)


if __name__ == "__main__":
    main()
