"""RecBole's SASRec: its training loop and its full-sort evaluation.

RecBole makes a row of every prefix of a history and trains on the item after
it alone, so an epoch has as many rows as targets, and a batch of as many rows
has fewer targets than elsewhere. It has no binary cross-entropy; its BPR loss
with one negative stands in for it.

It needs NumPy before 2.0 (`np.float_`). `recbole.quick_start` imports ray,
and is not used.
"""

import itertools
import os
from collections.abc import Iterator

import recbole
import torch
from recbole.config import Config
from recbole.data import create_dataset
from recbole.data import data_preparation
from recbole.model.sequential_recommender import SASRec
from recbole.trainer import Trainer

from peers.worker import SETTINGS
from peers.worker import answer
from peers.worker import num_batches
from peers.worker import read_sequences
from peers.worker import serve

LOSSES = {"bce": "BPR", "softmax": "CE", "ranking": "CE"}


class FirstBatches:
    """The first batches of an epoch, which is shuffled anew each time."""

    def __init__(self, loader: torch.utils.data.DataLoader, count: int) -> None:
        self._loader = loader
        self._count = count

    def __iter__(self) -> Iterator[object]:
        return itertools.islice(iter(self._loader), self._count)

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


def make_config() -> Config:
    """Writes the log in RecBole's format and returns what it is to do."""
    os.makedirs("recbole/log", exist_ok=True)
    with open("recbole/log/log.inter", "w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for user, items in enumerate(read_sequences()):
            for position, item in enumerate(items):
                file.write(f"{user}\t{item}\t{position}\n")
    negatives = {
        "distribution": "uniform",
        "sample_num": 1,
        "alpha": 1.0,
        "dynamic": False,
        "candidate_num": 0,
    }
    loss = LOSSES[SETTINGS["task"]]
    return Config(
        model="SASRec",
        dataset="log",
        config_dict={
            "data_path": "recbole",
            "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
            "MAX_ITEM_LIST_LENGTH": SETTINGS["max_length"],
            "eval_args": {
                "split": {"LS": "valid_and_test"},
                "order": "TO",
                "group_by": "user",
                "mode": "full",
            },
            "metrics": ["Hit", "NDCG"],
            "topk": [10],
            "valid_metric": "NDCG@10",
            "hidden_size": SETTINGS["embedding_dim"],
            "inner_size": SETTINGS["embedding_dim"],
            "n_layers": SETTINGS["num_layers"],
            "n_heads": SETTINGS["num_heads"],
            "hidden_dropout_prob": SETTINGS["dropout"],
            "attn_dropout_prob": SETTINGS["dropout"],
            "hidden_act": "relu",
            "loss_type": loss,
            "train_neg_sample_args": negatives if loss == "BPR" else None,
            "train_batch_size": SETTINGS["batch_size"],
            "eval_batch_size": SETTINGS["rank_batch_size"],
            "learning_rate": SETTINGS["learning_rate"],
            "use_gpu": False,
            "show_progress": False,
            "state": "ERROR",
        },
    )


def main() -> None:
    """Trains or ranks, a part of an epoch or all users a turn."""
    config = make_config()
    train, _, test = data_preparation(config, create_dataset(config))
    trainer = Trainer(config, SASRec(config, train.dataset).to("cpu"))
    versions = f"recbole {recbole.__version__}, torch {torch.__version__}"
    users = len(test.dataset)
    if SETTINGS["task"] == "ranking":
        answer(
            batches=len(test),
            turn_batches=len(test),
            users=users,
            targets=users,
            versions=versions,
        )
        serve(
            lambda: trainer.evaluate(
                test, load_best_model=False, show_progress=False
            )
        )
    rows = len(train.dataset)
    batches, turn_batches = num_batches(rows)
    answer(
        batches=batches,
        turn_batches=turn_batches,
        users=users,
        targets=rows,
        versions=versions,
    )
    part = FirstBatches(train, turn_batches)
    epochs = itertools.count()
    serve(lambda: trainer._train_epoch(part, next(epochs)))


if __name__ == "__main__":
    main()
