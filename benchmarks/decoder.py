"""Tokens per second of the Llama decoder, with and without the filter.

    KERAS_BACKEND=torch python benchmarks/decoder.py --checkpoint FOLDER

compares, in one process and on the same weights, transformers, the standard
decoder (`bayesian=False`) and the filter at strength 1. The contestants take
turns, so that a machine that slows down slows all of them down; a figure is the
median over the turns, and a ratio the median of the turns' ratios, with their
range. Prefill is the time to the first new token of a prompt, decode the time
of each token after it. Without `--checkpoint` the weights are random, of a
`--size`.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import torch
import transformers

import keras_bft
from measuring.turns import ratios
from measuring.turns import write_rows

Generate = Callable[[np.ndarray, int], np.ndarray]
SIZES = {
    "smollm2-135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "tinyllama-1.1b": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
    },
    "quick": {
        "hidden_size": 18,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 64,
    },
}


def reference(folder: Path) -> Generate:
    """Generation by transformers, with its default cache."""
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    ).eval()

    def generate(prompt: np.ndarray, count: int) -> np.ndarray:
        ids = torch.tensor(prompt, dtype=torch.int64)
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )
        return output.numpy()

    return generate


def ours(folder: Path, **options: object) -> Generate:
    """Generation by `BFTLlamaCausalLM`."""
    model = keras_bft.models.BFTLlamaCausalLM.from_preset(
        folder, preprocessor=None, **options
    )
    model.compile(sampler="greedy")

    def generate(prompt: np.ndarray, count: int) -> np.ndarray:
        padding = [(0, 0), (0, count)]
        output = model.generate(
            {
                "token_ids": np.pad(prompt, padding),
                "padding_mask": np.pad(np.ones_like(prompt), padding),
            },
            stop_token_ids=None,
        )
        return output["token_ids"]

    return generate


def measure(
    generate: Generate, prompt: np.ndarray, count: int
) -> tuple[float, float]:
    """Prefill and decode, in tokens per second."""
    seconds = []
    for new in (1, count):
        start = time.perf_counter()
        generate(prompt, new)
        seconds.append(time.perf_counter() - start)
    rows, length = prompt.shape
    decode = (seconds[1] - seconds[0]) / (count - 1)
    return rows * length / seconds[0], rows / decode


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="Hugging Face folder")
    parser.add_argument("--size", choices=SIZES, default="smollm2-135m")
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--new", type=int, default=64, help="tokens")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--output", type=Path, help="CSV file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.prompt, arguments.new, arguments.repeats = 8, 4, 1
        arguments.size = "quick"

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.checkpoint
        if folder is None:
            folder = Path(temporary)
            config = transformers.LlamaConfig(**SIZES[arguments.size])
            transformers.LlamaForCausalLM(config).save_pretrained(folder)
        contestants = {
            "transformers": reference(folder),
            "standard decoder": ours(folder, bayesian=False),
            "filter, strength 1": ours(folder, strength=1.0),
        }
    rng = np.random.default_rng(0)
    prompt = rng.integers(3, 64, (arguments.batch, arguments.prompt))

    results: dict[str, list[tuple[float, float]]] = {}
    for turn in range(arguments.repeats + 1):
        for name, generate in contestants.items():
            figures = measure(generate, prompt, arguments.new)
            # The first turn compiles.
            if turn:
                results.setdefault(name, []).append(figures)

    threads = torch.get_num_threads()
    print(
        f"{keras.backend.backend()}, keras {keras.__version__}, transformers "
        f"{transformers.__version__}, {threads} threads of {os.cpu_count()}"
    )
    rows = []
    for index, phase in enumerate(("prefill", "decode")):
        for name, figures in results.items():
            for other in ("transformers", "standard decoder"):
                rates, others = (
                    [figure[index] for figure in found]
                    for found in (figures, results[other])
                )
                rows.append(
                    {
                        "backend": keras.backend.backend(),
                        "phase": phase,
                        "model": name,
                        "tokens_per_second": statistics.median(rates),
                        "relative_to": other,
                        **ratios(rates, others),
                    }
                )
                if name != other:
                    row = rows[-1]
                    print(
                        f"{phase:8} {name:20} {row['tokens_per_second']:9.1f} "
                        f"tokens/s, {row['ratio']:.2f} times {other} "
                        f"({row['lowest']:.2f} to {row['highest']:.2f})"
                    )
    write_rows(rows, arguments.output)


if __name__ == "__main__":
    main()
