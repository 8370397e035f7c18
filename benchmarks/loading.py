"""Peak memory of loading a Llama checkpoint, relative to its weights.

    KERAS_BACKEND=jax python benchmarks/loading.py

writes random weights of TinyLlama-1.1B's configuration in bfloat16 to a
temporary folder, loads them with the filter in a new process, and compares the
growth of that process's memory, at its peak, with the size of the weights. It
reads the memory from /proc, so it needs Linux.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from keras_bft.models.llama.checkpoint_writer import TensorSource
from keras_bft.models.llama.checkpoint_writer import write_checkpoint
from keras_bft.models.llama.hf_config import write_llama_config
from keras_bft.models.llama.weight_names import weight_table

TINYLLAMA = {
    "vocabulary_size": 32000,
    "num_layers": 22,
    "num_query_heads": 32,
    "num_key_value_heads": 4,
    "hidden_dim": 2048,
    "intermediate_dim": 5632,
    "head_dim": None,
    "layer_norm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_bias": False,
    "max_position_embeddings": 2048,
}
QUICK = TINYLLAMA | {
    "vocabulary_size": 512,
    "num_layers": 2,
    "hidden_dim": 64,
    "intermediate_dim": 128,
}


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a checkpoint, by the last part of its name."""
    width, hidden = config["hidden_dim"], config["intermediate_dim"]
    head = width // config["num_query_heads"]
    keys = config["num_key_value_heads"] * head
    return {
        "embed_tokens.weight": (config["vocabulary_size"], width),
        "lm_head.weight": (config["vocabulary_size"], width),
        "q_proj.weight": (width, width),
        "k_proj.weight": (keys, width),
        "v_proj.weight": (keys, width),
        "o_proj.weight": (width, width),
        "gate_proj.weight": (hidden, width),
        "up_proj.weight": (hidden, width),
        "down_proj.weight": (width, hidden),
        "norm.weight": (width,),
        "layernorm.weight": (width,),
    }


def write(folder: Path, config: dict) -> int:
    """Writes random weights and returns their size in bytes."""
    rng = np.random.default_rng(0)
    known = shapes(config)

    def source(name: str) -> TensorSource:
        shape = next(s for end, s in known.items() if name.endswith(end))

        def read() -> np.ndarray:
            values = rng.normal(0.0, 0.02, shape).astype("float32")
            return values.astype(ml_dtypes.bfloat16)

        return TensorSource(name, shape, "bfloat16", read)

    table = weight_table(config["num_layers"], False, False)
    tensors = [source(row.hf) for row in table]
    write_llama_config(folder, config, "bfloat16")
    write_checkpoint(folder, tensors, max_shard_bytes=500_000_000)
    return sum(tensor.num_bytes for tensor in tensors)


def load(folder: Path) -> None:
    """Loads a checkpoint and prints what that took, as JSON."""
    import keras_bft

    loader = keras_bft.models.BFTLlamaCausalLM
    # What the backend takes by itself, once, is not the checkpoint's.
    with tempfile.TemporaryDirectory() as tiny:
        write(Path(tiny), QUICK)
        loader.from_preset(tiny, preprocessor=None, dtype="bfloat16")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize()
    start = time.perf_counter()
    model = loader.from_preset(folder, preprocessor=None, dtype="bfloat16")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    added = sum(
        int(np.prod(variable.shape))
        for variable in model.variables
        if variable.path.startswith("prior/")
        or variable.name in ("strength", "log_process_noise")
    )
    result = {
        "parameters": model.count_params() - added,
        "added": added,
        "growth": peak - before,
        "seconds": seconds,
    }
    print(json.dumps(result))


def main() -> None:
    """Writes, loads in a new process, and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny, for tests")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load(arguments.load)
        return
    with tempfile.TemporaryDirectory() as folder:
        config = QUICK if arguments.quick else TINYLLAMA
        size = write(Path(folder), config)
        process = subprocess.run(
            [sys.executable, __file__, "--load", folder],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
    result = json.loads(process.stdout.splitlines()[-1])
    print(
        f"{result['parameters']:,} parameters and {result['added']:,} of the "
        f"filter ({result['added'] / result['parameters']:.3%}); weights "
        f"{size / 1e6:.0f} MB, peak memory +{result['growth'] / 1e6:.0f} MB, "
        f"{result['growth'] / size:.3f} times; {result['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
