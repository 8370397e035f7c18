"""Time and memory of the filter's layers over the standard layer's.

    KERAS_BACKEND=jax python benchmarks/overhead.py --output overhead.csv

Two layers, forward and backward, in float32: the standard layer, the light and
the full form. The three take turns. Time is the median of the turns' ratios,
with their range. Memory is what a step holds at its peak besides its inputs
and results: XLA's account of it on JAX, the growth of the process on
TensorFlow (with `TF_ENABLE_ONEDNN_OPTS=0` alone) and PyTorch, from /proc.
"""

import argparse
import statistics
from pathlib import Path

import keras
import numpy as np

import keras_bft
from measuring.gradients import make_step
from measuring.turns import Row
from measuring.turns import ratios
from measuring.turns import take_turns
from measuring.turns import versions
from measuring.turns import write_rows

# Batch, length, width and heads.
SHAPES = {
    "B128 T50 D64": (128, 50, 64, 2),
    "B16 T200 D256": (16, 200, 256, 4),
    "B2 T512 D512": (2, 512, 512, 8),
    "B1 T2048 D512": (1, 2048, 512, 8),
}
QUICK = {"B2 T6 D8": (2, 6, 8, 2)}
FORMS: dict[str, dict[str, object]] = {
    "standard": {"bayesian": False},
    "light": {"form": "light"},
    "light, token": {"form": "light", "precision": "token"},
    "full": {"form": "full"},
}


class Stack(keras.layers.Layer):
    """Layers one after the other, state and log-precision threaded through."""

    def __init__(self, num_layers: int, **options: object) -> None:
        super().__init__()
        self.blocks = [
            keras_bft.layers.BFTLayer(**options) for _ in range(num_layers)
        ]
        self.bayesian = bool(options.get("bayesian", True))

    def call(
        self, state: object, log_precision: object, training: bool = False
    ) -> object:
        for block in self.blocks:
            output = block(state, log_precision, training=training)
            state, log_precision = output if self.bayesian else (output, None)
        return state


def measure(shape: tuple[int, int, int, int], repeats: int) -> list[Row]:
    """Times and bytes of each form, over the standard layer's."""
    batch, length, width, heads = shape
    rng = np.random.default_rng(0)
    state = rng.standard_normal((batch, length, width), "float32")
    log_precision = rng.standard_normal((batch, length, 1), "float32")
    steps, sizes = {}, {}
    for name, options in FORMS.items():
        keras.utils.set_random_seed(0)
        model = Stack(
            2,
            num_heads=heads,
            feed_forward_dim=4 * width,
            causal=True,
            **options,
        )
        model(state[:1, :2], log_precision[:1, :2])
        inputs = [state] if name == "standard" else [state, log_precision]
        if name == "standard":
            inputs.append(np.zeros((1, 1, 1), "float32"))
        steps[name], size = make_step(model, inputs)
        steps[name]()
        sizes[name] = size()
    seconds = take_turns(steps, repeats, warm_up=2)
    rows: list[Row] = []
    for name, measured in seconds.items():
        rows.append(
            {
                "form": name,
                "milliseconds": 1000 * statistics.median(measured),
                **ratios(measured, seconds["standard"]),
                "mib": sizes[name] / 2**20,
                "memory_ratio": sizes[name] / sizes["standard"],
            }
        )
    return rows


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    shapes = {name: SHAPES[name] for name in arguments.shapes}
    if arguments.quick:
        shapes, arguments.repeats = QUICK, 1

    print(versions())
    rows: list[Row] = []
    for shape, sizes in shapes.items():
        for row in measure(sizes, arguments.repeats):
            rows.append(
                {"backend": keras.backend.backend(), "shape": shape, **row}
            )
            print(
                f"{shape:14} {row['form']:14} {row['milliseconds']:9.2f} ms, "
                f"{row['ratio']:.2f} ({row['lowest']:.2f} to "
                f"{row['highest']:.2f}); {row['mib']:8.1f} MiB, "
                f"{row['memory_ratio']:.2f}",
                flush=True,
            )
    write_rows(rows, arguments.output)


if __name__ == "__main__":
    main()
