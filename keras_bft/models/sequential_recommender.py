"""What all sequential recommenders share: ids, losses, scores, top-k."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.data import SequenceDataset
from keras_bft.data import pad_sequences
from keras_bft.layers._filter_layer import check_positive
from keras_bft.losses import FullSoftmax
from keras_bft.losses import ItemLoss
from keras_bft.models._histories import bucket_length
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import check_ids
from keras_bft.models._top_k import top_k
from keras_bft.typing import Tensor


class SequentialRecommender(keras.Model):
    """Base of the models that score every item after a history of items.

    Items are integers from 1 to `num_items`; 0 is padding. A subclass embeds
    them with `self.item_embedding` and turns a `(B, T)` batch into states
    `(B, T, D)` in `call()`; an item's score is the inner product of a state
    with the item's embedding (tied tables).

    Args:
        num_items: Size of the catalogue.
        max_length: Number of newest items of a history that the model reads.
        embedding_dim: Width of the states.
        seed: Seed of dropout and of sampled negatives. Initial weights follow
            `keras.utils.set_random_seed`.
        **kwargs: Arguments of `keras.Model`.
    """

    def __init__(
        self,
        num_items: int,
        max_length: int,
        embedding_dim: int,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (
            ("num_items", num_items),
            ("max_length", max_length),
            ("embedding_dim", embedding_dim),
        ):
            check_positive(name, value)
        self.num_items = num_items
        self.max_length = max_length
        self.embedding_dim = embedding_dim
        self.seed = seed
        self.embedding_stddev = embedding_dim**-0.5
        self.item_embedding = keras.layers.Embedding(
            num_items + 1,
            embedding_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=self.embedding_stddev
            ),
            dtype=self.dtype_policy,
            name="item_embedding",
        )
        self.negative_seed = keras.random.SeedGenerator(seed)

    def compute_output_spec(
        self, items: keras.KerasTensor, training: bool = False
    ) -> keras.KerasTensor:
        shape = (*items.shape, self.embedding_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

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
            **kwargs: Other arguments of `keras.Model.compile`.

        Raises:
            TypeError: If `loss` is not a loss over items.
        """
        loss = FullSoftmax() if loss is None else loss
        if not isinstance(loss, ItemLoss):
            raise TypeError(
                "`loss` must be one of `keras_bft.losses`, which score states "
                f"against the item table. Received: loss={loss!r}"
            )
        self._jit_compile_argument = kwargs.get("jit_compile", "auto")
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def get_compile_config(self) -> dict[str, Any] | None:
        """Returns the compile arguments, `jit_compile` as it was given.

        Keras keeps what `"auto"` came to on this backend. A model saved on
        JAX would then compile on torch too, which takes minutes.
        """
        config = super().get_compile_config()
        if config is not None:
            config["jit_compile"] = self._jit_compile_argument
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was compiled when saved."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

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
        loss = self.loss.from_states(
            y, y_pred, self.item_embedding.embeddings, seed=self.negative_seed
        )
        for extra in self.losses:
            loss = loss + ops.sum(ops.cast(extra, "float32"))
        return loss

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Trains the model, as `keras.Model.fit` does.

        Args:
            x: A `keras_bft.data.SequenceDataset`, or whatever else
                `keras.Model.fit` takes and yields `(items, next_items)`:
                a `tf.data.Dataset`, a torch `DataLoader`, a generator, or the
                arrays themselves.
            y: Next items, if `x` is an array; 0 marks no target.
            **kwargs: Other arguments of `keras.Model.fit`.

        Returns:
            A Keras `History`.

        Raises:
            ValueError: If arrays or a `SequenceDataset` hold unknown ids.
                Other sources are read by Keras and cannot be checked here.
        """
        self._check_data(x, y)
        validation_data = kwargs.get("validation_data")
        if isinstance(validation_data, (tuple, list)):
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

    def _check_data(self, x: Any, y: Any = None) -> None:
        """Raises a `ValueError` if unknown ids are seen."""
        if isinstance(x, SequenceDataset):
            check_ids("x", np.array([x.max_item]), self.num_items)
        for name, ids in (("x", x), ("y", y)):
            if isinstance(ids, np.ndarray):
                check_ids(name, ids, self.num_items)

    def score(
        self,
        histories: Sequence[Sequence[int] | np.ndarray],
        batch_size: int = 256,
    ) -> np.ndarray:
        """Scores every item as the next one of each history.

        Args:
            histories: One sequence of item ids per user, oldest first. Of a
                long history the newest `max_length` items are read.
            batch_size: Largest number of histories encoded at once.

        Returns:
            Scores of shape `(len(histories), num_items + 1)`, float32. Column
            0, padding, is minus infinity.

        Raises:
            ValueError: If a history is empty or holds an unknown id.
        """
        arrays = check_histories(histories, self.num_items)
        states = np.zeros((len(arrays), self.embedding_dim), "float32")
        lengths = np.array([min(len(a), self.max_length) for a in arrays])
        buckets = np.array([bucket_length(n, self.max_length) for n in lengths])
        for length in np.unique(buckets):
            users = np.flatnonzero(buckets == length)
            for start in range(0, len(users), batch_size):
                chunk = users[start : start + batch_size]
                # Few numbers of rows, as each is compiled anew.
                rows = 1 << (len(chunk) - 1).bit_length()
                rows = batch_size if len(users) > batch_size else rows
                items = np.zeros((rows, length), "int32")
                items[: len(chunk)] = pad_sequences(
                    [arrays[user] for user in chunk], length
                )
                output = ops.convert_to_numpy(self.predict_on_batch(items))
                last = lengths[chunk] - 1
                states[chunk] = output[np.arange(len(chunk)), last]
        table = ops.convert_to_numpy(self.item_embedding.embeddings)
        scores = states @ table.astype("float32").T
        scores[:, 0] = -np.inf
        return scores

    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray],
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Recommends the `k` best items after each history.

        Works for any history, also of users that were not seen in training.

        Args:
            histories: One sequence of item ids per user, oldest first.
            k: Number of items to recommend.
            filter_seen: Whether to leave out the items of the history, all of
                it. Defaults to `True`.
            batch_size: Largest number of histories scored at once.

        Returns:
            Item ids, int64, and scores, float32, both `(len(histories), k)`,
            best first; equal scores in the order of the ids. Where fewer than
            `k` items are left, the rest is id 0 with minus infinity.

        Raises:
            ValueError: If `k` is not from 1 to `num_items`, a history is
                empty or holds an unknown id.
        """
        if not 1 <= k <= self.num_items:
            raise ValueError(
                f"`k` must be from 1 to `num_items`={self.num_items}. "
                f"Received: k={k}"
            )
        arrays = check_histories(histories, self.num_items)
        ids = np.zeros((len(arrays), k), "int64")
        best = np.full((len(arrays), k), -np.inf, "float32")
        for start in range(0, len(arrays), batch_size):
            chunk = arrays[start : start + batch_size]
            scores = self.score(chunk, batch_size)
            if filter_seen:
                for row, history in zip(scores, chunk, strict=True):
                    row[history] = -np.inf
            rows = slice(start, start + len(chunk))
            ids[rows], best[rows] = top_k(scores, k)
        return ids, best

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_items": self.num_items,
            "max_length": self.max_length,
            "embedding_dim": self.embedding_dim,
            "seed": self.seed,
        }
