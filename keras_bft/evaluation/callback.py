"""Validation by ranking while a model trains."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bft.evaluation.rank_targets import rank_targets


class RankingCallback(keras.callbacks.Callback):
    """Ranks validation targets after each epoch and logs the measures.

    Puts `val_hr@K`, `val_ndcg@K` (for each K of `ks`) and `val_mrr` into the
    epoch's `logs`, where the progress bar, `History`, `EarlyStopping` and
    `ModelCheckpoint` find them. Keras calls callbacks in the order they are
    given: put this one before those that read its values, and give those
    `mode="max"`. The model needs a method `score(histories)`, as
    `keras_bft.models.SASRec` has.

    Args:
        histories: One sequence of item ids for each validation user.
        targets: Integers of shape `(num_users,)`, the item to rank.
        filter_seen: Whether items of the history are left out of the
            catalogue. Defaults to `True`.
        batch_size: Users scored at a time. Defaults to 256.
        ks: Lengths of the list. Defaults to 10 alone.
        timestamps: Times of the items of each history, for a model that reads
            them.

    Examples:

    ```python
    split = keras_bft.data.leave_one_out(sequences)
    model.fit(
        keras_bft.data.SequenceDataset(split.train),
        epochs=100,
        callbacks=[
            keras_bft.evaluation.RankingCallback(
                split.validation_histories, split.validation_targets
            ),
            keras.callbacks.EarlyStopping(
                "val_ndcg@10", patience=10, mode="max",
                restore_best_weights=True,
            ),
        ],
    )
    ```
    """

    def __init__(
        self,
        histories: Sequence[Any],
        targets: Any,
        *,
        filter_seen: bool = True,
        batch_size: int = 256,
        ks: Sequence[int] = (10,),
        timestamps: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self.histories = histories
        self.targets = targets
        self.filter_seen = filter_seen
        self.batch_size = batch_size
        self.ks = ks
        self.timestamps = timestamps

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Ranks the targets and adds the measures to `logs`."""
        ranking = rank_targets(
            self.model,
            self.histories,
            self.targets,
            filter_seen=self.filter_seen,
            batch_size=self.batch_size,
            timestamps=self.timestamps,
            verbose=False,
        )
        if logs is not None:
            for name, value in ranking.summary(self.ks).items():
                logs[f"val_{name}"] = value
