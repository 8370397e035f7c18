r"""Time and memory of a fine-tuning step, over standard fine-tuning.

    KERAS_BACKEND=torch OMP_NUM_THREADS=1 python benchmarks/fine_tuning.py \
        --dtype mixed_bfloat16 --output fine_tuning.csv

Decoders of the size of SmolLM2-135M with random weights, standard, with gated
attention, and with the filter (and with layers computed again instead of
held), take turns at steps of LoRA on one batch. A ratio of times is the median
over the turns. Memory is what the process grows by over one step after the
first, at its peak, besides the model. It is read from /proc, so it needs Linux.
"""

import argparse
import contextlib
import statistics
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM
from measuring.memory import growth
from measuring.turns import Row
from measuring.turns import ratios
from measuring.turns import take_turns
from measuring.turns import versions
from measuring.turns import write_rows

SMOLLM2 = {
    "vocabulary_size": 49152,
    "num_layers": 30,
    "num_query_heads": 9,
    "num_key_value_heads": 3,
    "hidden_dim": 576,
    "intermediate_dim": 1536,
}
QUICK = {
    "vocabulary_size": 64,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
STANDARD = "standard"
# Arguments of the backbone, and whether layers are computed again.
ARMS: dict[str, tuple[dict[str, Any], bool]] = {
    STANDARD: ({"bayesian": False}, False),
    "gated attention": ({"bayesian": False, "gated_attention": True}, False),
    "filter": ({"trainable_strength": True, "strength": 0.1}, False),
    "standard, rematerialized": ({"bayesian": False}, True),
    "filter, rematerialized": (
        {"trainable_strength": True, "strength": 0.1},
        True,
    ),
}


def make(options: dict[str, Any], remat: bool, rank: int) -> BFTLlamaCausalLM:
    """A compiled decoder of an arm, with random weights."""
    keras.utils.set_random_seed(0)
    names = [f"decoder_layer_{n}" for n in range(options["num_layers"])]
    scope = keras.RematScope("list_of_layers", layer_names=names)
    with scope if remat else contextlib.nullcontext():
        model = BFTLlamaCausalLM(BFTLlamaBackbone(**options))
    if rank:
        model.backbone.enable_lora(rank)
    model.compile(keras.optimizers.AdamW(1e-4))
    return model


def main(argv: list[str] | None = None) -> list[Row]:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--layers", type=int, default=30)
    add("--batch", type=int, default=4, help="sequences")
    add("--length", type=int, default=256, help="tokens of each")
    add("--lora-rank", type=int, default=16, help="0 trains all weights")
    add("--dtype", default="float32", help="Keras policy")
    add("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    add("--repeats", type=int, default=5, help="turns")
    add("--quick", action="store_true", help="tiny, for tests")
    add("--output", type=Path, help="CSV file")
    arguments = parser.parse_args(argv)
    size = SMOLLM2 | {"num_layers": arguments.layers}
    if arguments.quick:
        size, arguments.repeats = QUICK, 1
        arguments.batch, arguments.length = 2, 8
    keras.config.set_dtype_policy(arguments.dtype)
    rng = np.random.default_rng(0)
    shape = (arguments.batch, arguments.length)
    ids = rng.integers(0, size["vocabulary_size"], shape).astype("int32")
    batch = {"token_ids": ids, "padding_mask": np.ones_like(ids)}

    rows: dict[str, Row] = {}
    steps = {}
    for name in dict.fromkeys([STANDARD, *arguments.arms]):
        options, remat = ARMS[name]
        model = make(size | options, remat, arguments.lora_rank)

        def step(model: BFTLlamaCausalLM = model) -> object:
            return model.train_on_batch(batch, ids)

        step()  # Compiles, and makes the optimizer's slots.
        rows[name] = {"arm": name, "megabytes": growth(step) / 1e6}
        steps[name] = step
    seconds = take_turns(steps, arguments.repeats)
    print(f"{versions()}, {arguments.dtype}, {shape[0]} x {shape[1]} tokens")
    for name, row in rows.items():
        row["seconds"] = statistics.median(seconds[name])
        row |= ratios(seconds[name], seconds[STANDARD])
        row["memory_ratio"] = (
            row["megabytes"] / rows[STANDARD]["megabytes"]
            if rows[STANDARD]["megabytes"]
            else float("nan")
        )
        print(
            f"{name:26} {row['seconds']:7.2f} s a step, {row['ratio']:.2f} "
            f"({row['lowest']:.2f} to {row['highest']:.2f}) times standard; "
            f"+{row['megabytes']:,.0f} MB, {row['memory_ratio']:.2f} times"
        )
    write_rows(list(rows.values()), arguments.output)
    return list(rows.values())


if __name__ == "__main__":
    main()
