"""The models that the study trains, by name."""

from typing import Any

import numpy as np

import keras_bft
from keras_bft.models import SequentialRecommender

BACKBONES = {
    "sasrec": keras_bft.models.SASRec,
    "bert4rec": keras_bft.models.BERT4Rec,
    "hstu": keras_bft.models.HSTU,
}

# Of the Transformers. Each changes one thing in BFT, or in the plain model.
ABLATIONS: dict[str, dict[str, Any]] = {
    "no-kriging-weights": {"layer_options": {"kriging_weights": False}},
    "gain-one": {"layer_options": {"kalman_gain": False}},
    "no-process-noise": {"layer_options": {"initial_log_process_noise": None}},
    "no-jacobian": {"layer_options": {"jacobian": None}},
    "prior-mlp": {"prior": "mlp"},
    "prior-constant": {"prior": "constant"},
    "variance-head": {"layer_options": {"variance": "head"}},
    "variance-token": {
        "precision": "token",
        "layer_options": {"variance": "head"},
    },
    "dof-0.5": {"layer_options": {"prior_dof": 0.5}},
    "dof-2": {"layer_options": {"prior_dof": 2.0}},
    "plug-in": {"layer_options": {"differentiate_statistics": False}},
    "light": {"form": "light"},
    "no-units": {"carry_units": False},
    # No arguments of the models: `make_model` and the run read them.
    "prior-counts": {"prior_counts": True},
    "fast-precisions": {"precision_rate": 10.0},
    "mean-field": {"predictive": "mean_field"},
    "item-precision": {"predictive": "item_precision"},
}
OPTIONS: dict[str, dict[str, Any]] = {
    **ABLATIONS,
    "gated": {"gated_attention": True},
    "renormalized": {"dropout_mode": "renormalized"},
    "unscaled": {"scale_embeddings": False},
    "strength-learned": {"trainable_strength": True},
    "layers-4": {"num_layers": 4},
    # Of HSTU, for data with timestamps.
    "times": {"num_time_buckets": 128},
}


def parse_variant(name: str) -> tuple[bool, str, dict[str, Any]]:
    """Reads a name such as `bft-sasrec:no-units:renormalized`.

    Returns:
        Whether the model is Bayesian, the name of its backbone, and the other
        arguments of its constructor.

    Raises:
        ValueError: If a part of the name is unknown.
    """
    base, *parts = name.split(":")
    bayesian = base.startswith("bft-")
    backbone = base.removeprefix("bft-")
    if backbone not in BACKBONES:
        raise ValueError(
            "A model must be one of "
            f"{[p + b for b in BACKBONES for p in ('', 'bft-')]}, with options "
            f"after colons. Received: {name!r}"
        )
    options: dict[str, Any] = {}
    for part in parts:
        if part not in OPTIONS:
            raise ValueError(
                f"An option must be one of {list(OPTIONS)}. "
                f"Received: {part!r} in {name!r}"
            )
        for key, value in OPTIONS[part].items():
            if isinstance(value, dict):
                value = options.get(key, {}) | value
            options[key] = value
    return bayesian, backbone, options


def plain_counterpart(name: str) -> str:
    """Name of the model to compare with: the same without the filter.

    Options of the filter alone mean nothing to it and are left out.
    """
    base, *parts = name.split(":")
    kept = [part for part in parts if part not in ABLATIONS]
    return ":".join([base.removeprefix("bft-"), *kept])


def ablated_from(name: str) -> list[tuple[str, str]]:
    """The ablations in the name of a BFT model, each with the name without."""
    base, *parts = name.split(":")
    if not base.startswith("bft-"):
        return []
    return [
        (part, ":".join([base, *parts[:index], *parts[index + 1 :]]))
        for index, part in enumerate(parts)
        if part in ABLATIONS
    ]


def expand(names: list[str]) -> list[str]:
    """Replaces `ablations` by all ablations of BFT-SASRec.

    Behind another name, as in `bft-sasrec:unscaled:ablations`, it stands for
    those of that model.
    """
    expanded = []
    for name in names:
        base, _, last = f"bft-sasrec:{name}".rpartition(":")
        if last == "ablations":
            base = base.removeprefix("bft-sasrec:")
            taken = base.split(":")
            expanded += [f"{base}:{p}" for p in ABLATIONS if p not in taken]
        else:
            expanded.append(name)
    for name in expanded:
        parse_variant(name)
    return list(dict.fromkeys(expanded))


def make_model(
    name: str, item_counts: np.ndarray, max_length: int, **options: Any
) -> SequentialRecommender:
    """Returns the built model of a name."""
    bayesian, backbone, variant = parse_variant(name)
    prior_counts = variant.pop("prior_counts", False)
    variant.pop("precision_rate", None)
    variant.pop("predictive", None)
    model = BACKBONES[backbone](
        len(item_counts) - 1,
        max_length=max_length,
        bayesian=bayesian,
        **options | variant,
    )
    shape = (None, max_length)
    model.build([shape, shape] if model.reads_timestamps else shape)
    if prior_counts:
        model.initialize_prior(item_counts)
    return model
