"""Trains a tiny model with the installed package and one backend alone.

Run in an environment without TensorFlow and the extras. The folder of this
script, not the repository, is on the path, so the package is the installed one.
"""

import importlib.util
import sys
from pathlib import Path

import keras
import numpy as np

import keras_bft

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    """Trains, recommends and complains about what should not be there."""
    package = Path(keras_bft.__file__).resolve().parent
    if package.is_relative_to(REPOSITORY):
        sys.exit(f"The package comes from the repository: {package}")
    if not (package / "py.typed").exists():
        sys.exit(f"`py.typed` was not installed with {package}")
    for name in ("tensorflow", "pandas", "matplotlib"):
        if importlib.util.find_spec(name) is not None:
            sys.exit(f"`{name}` is installed and should not be")

    keras.utils.set_random_seed(0)
    interactions = keras_bft.data.synthetic_interactions(
        num_users=60, num_items=40, num_clusters=4
    ).interactions
    sequences = interactions.sequences()
    model = keras_bft.models.SASRec(
        num_items=interactions.num_items,
        max_length=10,
        embedding_dim=8,
        num_layers=1,
        num_heads=1,
        feed_forward_dim=8,
        dropout=0.0,
    )
    model.compile(
        keras.optimizers.Adam(0.01), loss=keras_bft.losses.FullSoftmax()
    )
    batches = keras_bft.data.SequenceDataset(
        sequences, max_length=10, batch_size=16
    )
    losses = model.fit(batches, epochs=5, verbose=0).history["loss"]
    if not losses[-1] < losses[0]:
        sys.exit(f"The loss did not fall: {losses}")
    items, scores = model.recommend(sequences[:3], k=5)
    if np.shape(items) != (3, 5) or not np.all(np.isfinite(scores)):
        sys.exit(f"Bad recommendations: {items}, {scores}")
    print(f"{keras.backend.backend()} alone: trained, losses {losses}")


if __name__ == "__main__":
    main()
