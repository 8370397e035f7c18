"""RecTools' SASRecModel.

A turn is an epoch of its Lightning trainer, of as many batches as a turn has.
"""

import pandas as pd
import pytorch_lightning as lightning
import rectools
import torch
from rectools.dataset import Dataset
from rectools.models import SASRecModel

from peers.worker import SETTINGS
from peers.worker import answer
from peers.worker import num_batches
from peers.worker import read_sequences
from peers.worker import wait

LOSSES = {"bce": "BCE", "softmax": "softmax"}


class Turns(lightning.Callback):
    """Holds the trainer between epochs."""

    def on_train_epoch_start(self, *_: object) -> None:
        """Waits for the turn."""
        wait()

    def on_train_epoch_end(self, *_: object) -> None:
        """Tells that it is done."""
        answer(done=True)


def main() -> None:
    """Trains, an epoch a turn."""
    # As for the other peers, the last two items of each user are held out.
    train = [items[:-2] for items in read_sequences()]
    rows = [
        (user, item, position)
        for user, items in enumerate(train)
        for position, item in enumerate(items)
    ]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id", "position"])
    frame["datetime"] = pd.to_datetime(frame.pop("position"), unit="s")
    frame["weight"] = 1.0
    with_target = [len(items) for items in train if len(items) >= 2]
    batches, turn_batches = num_batches(len(with_target))

    model = SASRecModel(
        n_blocks=SETTINGS["num_layers"],
        n_heads=SETTINGS["num_heads"],
        n_factors=SETTINGS["embedding_dim"],
        dropout_rate=SETTINGS["dropout"],
        session_max_len=SETTINGS["max_length"],
        batch_size=SETTINGS["batch_size"],
        lr=SETTINGS["learning_rate"],
        loss=LOSSES[SETTINGS["task"]],
        n_negatives=1,
        get_trainer_func=lambda: lightning.Trainer(
            accelerator="cpu",
            max_epochs=-1,
            limit_train_batches=turn_batches,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Turns()],
        ),
    )
    answer(
        batches=batches,
        turn_batches=turn_batches,
        users=len(with_target),
        targets=sum(min(n - 1, SETTINGS["max_length"]) for n in with_target),
        versions=f"rectools {rectools.__version__}, torch {torch.__version__}",
    )
    model.fit(Dataset.construct(frame))


if __name__ == "__main__":
    main()
