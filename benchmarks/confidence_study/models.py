"""Trained models, kept with their weights."""

from pathlib import Path
from typing import Any

from keras_bft.training import replacing
from study.runs import Dataset
from study.runs import build
from study.runs import claim_run
from study.runs import train
from study.settings import Settings
from study.variants import parse_variant


def trained(
    name: str, data: Dataset, seed: int, settings: Settings, output: Path
) -> tuple[Any, Path]:
    """Returns a model, trained as far as that was not done, and its folder.

    Raises:
        ValueError: If the folder holds a run with other settings.
    """
    folder = claim_run(name, data, seed, settings, output)
    print(f"\n{data.name}: {name}, seed {seed}, {settings.label}", flush=True)
    model = build(name, data, seed, settings)
    weights = folder / "model.weights.h5"
    if weights.exists():
        print("Trained before.")
        model.load_weights(weights)
        return model, folder
    rate = parse_variant(name)[2].get("precision_rate")
    train(model, data, seed, folder, settings, rate)
    with replacing(weights) as part:
        model.save_weights(part)
    (folder / "checkpoint.npz").unlink()
    return model, folder
