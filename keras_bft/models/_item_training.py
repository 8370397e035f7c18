"""Training of recommenders, with a loss that scores the item table itself."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.data import SequenceDataset
from keras_bft.layers import ItemEncoder
from keras_bft.losses import FullSoftmax
from keras_bft.losses import ItemLoss
from keras_bft.models._compile_config import PortableCompilation
from keras_bft.models._export import ExportableModel
from keras_bft.models._histories import check_ids
from keras_bft.models._histories import is_ragged
from keras_bft.typing import Tensor


class ItemTraining(PortableCompilation, ExportableModel):
    """The part of a recommender that trains it.

    A subclass has the item table, and states that are scored against it.
    """

    num_items: int
    num_special_ids: int
    item_embedding: Any
    negative_seed: keras.random.SeedGenerator

    @property
    def num_known_items(self) -> int:
        """Number of items that have an embedding; the others are new."""
        known: int = getattr(
            self.item_embedding, "num_known_items", self.num_items
        )
        return known

    def item_table(self) -> Tensor:
        """Vectors of padding and items, `(num_items + 1, D)`."""
        raise NotImplementedError

    def compile(
        self,
        optimizer: Any = "adam",
        loss: ItemLoss | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures training.

        Args:
            optimizer: A Keras optimizer. Defaults to Adam.
            loss: A loss of `keras_bft.losses`. Defaults to `FullSoftmax()`.
            **kwargs: Other arguments of `keras.Model.compile`, but metrics:
                `keras_bft.evaluation.RankingCallback` logs those of rankings.

        Raises:
            TypeError: If `loss` is not a loss over items.
            ValueError: If metrics are given.
        """
        loss = FullSoftmax() if loss is None else loss
        if not isinstance(loss, ItemLoss):
            raise TypeError(
                "`loss` must be one of `keras_bft.losses`, which score states "
                f"against the item table. Received: loss={loss!r}"
            )
        for name in ("metrics", "weighted_metrics"):
            if kwargs.get(name):
                raise ValueError(
                    f"`{name}` would compare item ids with states, as scores "
                    "are not computed in training. Pass `fit` a "
                    "`keras_bft.evaluation.RankingCallback`, which logs "
                    f"`val_ndcg@10`. Received: {name}={kwargs[name]}"
                )
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def compute_loss(
        self,
        x: Tensor = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor = None,
        training: bool = True,
    ) -> Tensor:
        """Loss of the next items `y` given the states `y_pred`."""
        if sample_weight is not None:
            raise ValueError(
                "Sample weights are not supported. Set the target of a "
                "position to 0 to leave it out. "
                f"Received: sample_weight={sample_weight}"
            )
        encoder = self.item_embedding
        if isinstance(encoder, ItemEncoder):
            # New items would be learned to be what nobody wants.
            table = encoder.table(known=True, training=training)
        else:
            table = self.item_table()
        loss = self.loss.from_states(y, y_pred, table, seed=self.negative_seed)
        for extra in self.losses:
            loss = loss + ops.sum(ops.cast(extra, "float32"))
        return loss

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Trains the model, as `keras.Model.fit` does.

        Args:
            x: A `keras_bft.data.SequenceDataset`, or whatever else
                `keras.Model.fit` takes and yields `(items, next_items)`:
                a `tf.data.Dataset`, a torch `DataLoader`, a generator, or the
                arrays themselves. `items` may be `(items, timestamps)` where
                the model reads them.
            y: Next items, if `x` is an array; 0 marks no target.
            **kwargs: Other arguments of `keras.Model.fit`.

        Returns:
            A Keras `History`.

        Raises:
            ValueError: If arrays or a `SequenceDataset` hold unknown ids or
                histories longer than `max_length`, or histories are given as
                they are. Other sources are read by Keras and cannot be checked:
                TensorFlow and PyTorch then raise an error of their own, and
                JAX computes NaN, at which
                `keras_bft.training.TerminateOnNonFinite` stops.
        """
        self._check_data(x, y)
        validation_data = kwargs.get("validation_data")
        if isinstance(validation_data, (tuple, list)):
            if validation_data and is_ragged(validation_data[0]):
                raise ValueError(
                    "`validation_data` must be a `SequenceDataset` or arrays. "
                    "To rank the target of each history, pass "
                    "`callbacks=[keras_bft.evaluation.RankingCallback("
                    "histories, targets)]`. Received: validation_data with "
                    f"{len(validation_data[0])} histories"
                )
            self._check_data(*validation_data[:2])
        else:
            self._check_data(validation_data)
        if isinstance(x, SequenceDataset):
            # It shuffles by itself, the same on every backend.
            kwargs.setdefault("shuffle", False)
        return super().fit(x, y, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Computes the loss, as `keras.Model.evaluate` does.

        Args:
            x: As in `fit()`.
            y: As in `fit()`.
            **kwargs: Other arguments of `keras.Model.evaluate`.

        Returns:
            The loss, and metrics if there are any.

        Raises:
            ValueError: As in `fit()`.
        """
        self._check_data(x, y)
        return super().evaluate(x, y, **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Trains on one batch, as `keras.Model.train_on_batch` does.

        Args:
            x: `items`, or `(items, timestamps)`.
            y: Next items; 0 marks no target.
            **kwargs: Other arguments of `keras.Model.train_on_batch`.

        Raises:
            ValueError: As in `fit()`.
        """
        self._check_data(x, y)
        return super().train_on_batch(x, y, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, **kwargs: Any) -> Any:
        """Computes the loss of one batch, as `keras.Model.test_on_batch` does.

        Args:
            x: As in `train_on_batch()`.
            y: As in `train_on_batch()`.
            **kwargs: Other arguments of `keras.Model.test_on_batch`.

        Raises:
            ValueError: As in `fit()`.
        """
        self._check_data(x, y)
        return super().test_on_batch(x, y, **kwargs)

    def _check_data(self, x: Any, y: Any = None) -> None:
        """Raises a `ValueError` if unknown ids are seen."""
        largest = self.num_items + self.num_special_ids
        if is_ragged(x):
            raise ValueError(
                "`x` must be batches of histories and their next items: pass "
                "`keras_bft.data.SequenceDataset(histories)`. Received: a "
                f"{type(x).__name__} of {len(x)} histories"
            )
        if isinstance(x, SequenceDataset):
            check_ids("x", np.array([x.max_item]), self.num_known_items)
            longest = x.bucket_lengths[-1]
            if longest > self.max_length:
                raise ValueError(
                    "The dataset must not have longer batches than the "
                    f"model's `max_length`={self.max_length}: pass "
                    f"`max_length={self.max_length}` to the "
                    f"{type(x).__name__}. Received: batches of length {longest}"
                )
        elif isinstance(x, (tuple, list)) and self.reads_timestamps:
            x = x[0]
        for name, ids, limit in (
            ("x", x, largest),
            ("y", y, self.num_known_items),
        ):
            if isinstance(ids, np.ndarray):
                check_ids(name, ids, limit)
