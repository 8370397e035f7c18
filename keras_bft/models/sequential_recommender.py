"""What all sequential recommenders share: ids, losses, scores, top-k."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.data import SequenceDataset
from keras_bft.data.timestamps import flatten_timestamps
from keras_bft.layers import ItemEncoder
from keras_bft.layers._filter_layer import check_positive
from keras_bft.losses import FullSoftmax
from keras_bft.losses import ItemLoss
from keras_bft.models._device_mesh import check_table_width
from keras_bft.models._device_mesh import item_layout_map
from keras_bft.models._export import ExportableModel
from keras_bft.models._histories import check_histories
from keras_bft.models._histories import check_ids
from keras_bft.models._histories import chunks_of_similar_length
from keras_bft.models._histories import padded_batch
from keras_bft.models._item_embedding import make_item_embedding
from keras_bft.models._item_embedding import with_new_items
from keras_bft.models._scoring import best_items
from keras_bft.models._scoring import host_array
from keras_bft.models._scoring import score_items
from keras_bft.models.user_state import UserState
from keras_bft.typing import Tensor


class SequentialRecommender(ExportableModel):
    """Base of the models that score every item after a history of items.

    Items are integers from 1 to `num_items`; 0 is padding. A subclass embeds
    them with `self.item_embedding` and turns a `(B, T)` batch into states
    `(B, T, D)` in `call()`; an item's score is the inner product of a state
    with the item's embedding (tied tables). Two attributes of the class can be
    set: `num_special_ids`, the number of ids after `num_items` that the model
    embeds and never recommends, and `reads_timestamps`, whether `call()` also
    takes a pair `(items, timestamps)`.

    Args:
        num_items: Size of the catalogue.
        max_length: Number of newest items of a history that the model reads.
        embedding_dim: Width of the states.
        seed: Seed of dropout and of sampled negatives. Initial weights follow
            `keras.utils.set_random_seed`.
        item_features: What is known of the items besides their ids, a dict of
            arguments of `keras_bft.layers.ItemEncoder` such as
            `{"categorical": array, "dense": array}`, each with `num_items + 1`
            rows, that of padding first. Items that no training has seen can
            then be scored, see `add_items()`. Defaults to `None`: ids alone.
        item_embedding: The layer of the ids, a `keras.layers.Embedding` or a
            `keras_rs.layers.DistributedEmbedding` of one feature, with a row
            for padding, each item and each special id. Where units are carried
            it should start with a standard deviation of `D**-0.5`. Defaults to
            `None`, such an `Embedding`.
        **kwargs: Arguments of `keras.Model`.
    """

    num_special_ids = 0

    def __init__(
        self,
        num_items: int,
        max_length: int,
        embedding_dim: int,
        seed: int | None = None,
        item_features: dict[str, Any] | None = None,
        item_embedding: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (
            ("num_items", num_items),
            ("max_length", max_length),
            ("embedding_dim", embedding_dim),
        ):
            check_positive(name, value)
        check_table_width(embedding_dim)
        self.num_items = num_items
        self.max_length = max_length
        self.embedding_dim = embedding_dim
        self.seed = seed
        self.embedding_stddev = embedding_dim**-0.5
        self.item_embedding = make_item_embedding(
            num_items,
            self.num_special_ids,
            embedding_dim,
            item_embedding,
            item_features,
            seed,
            self.dtype_policy,
        )
        self._has_own_embedding = item_embedding is None
        self.negative_seed = keras.random.SeedGenerator(seed)

    @property
    def num_known_items(self) -> int:
        """Number of items that have an embedding; the others are new."""
        known: int = getattr(
            self.item_embedding, "num_known_items", self.num_items
        )
        return known

    def item_table(self) -> Tensor:
        """Vectors of padding and items, `(num_items + 1, D)`.

        Those that scores are inner products with; to be given to an index.
        """
        if isinstance(self.item_embedding, ItemEncoder):
            return self.item_embedding.table()
        table = self.item_embedding.embeddings
        if self.num_special_ids == 0:
            # A slice would copy it.
            return ops.convert_to_tensor(table)
        return table[: self.num_items + 1]

    def encode_last(self, items: Tensor, *times: Tensor) -> tuple[Any, Any]:
        """States, and the position of that which scores the next item.

        Args:
            items: `(B, T)` int32, 0 pads at either side.
            *times: Their times, `(B, T)`, where the model reads them.

        Returns:
            `(B, T, D)`, and `(B,)` int32.
        """
        real = ops.cast(ops.not_equal(items, 0), "int32")
        index = ops.cumsum(ops.ones_like(items), axis=1) - 1
        return self((items, *times) if times else items), ops.max(
            real * index, axis=1
        )

    @staticmethod
    def get_layout_map(
        device_mesh: Any,
        model_parallel_dim_name: str = "model",
        data_parallel_dim_name: str = "batch",
    ) -> Any:
        """The layout of the weights for `keras.distribution.ModelParallel`.

        The item table is split by channels: every device holds some channels
        of all items, which takes no padding whatever the number of items. The
        optimizer's slots follow it. All other weights are on every device, as
        is the table of a layer given as `item_embedding` under another name.
        Set the distribution before the model is made. `recommend` and `score`
        bring the table to the host. Keras distributes on JAX alone.

        Args:
            device_mesh: A `keras.distribution.DeviceMesh`.
            model_parallel_dim_name: Axis of the mesh that splits the table;
                its size must divide `embedding_dim`.
            data_parallel_dim_name: Axis of the mesh that splits batches.

        Returns:
            A `keras.distribution.LayoutMap`.

        Raises:
            ValueError: If the mesh is none or lacks an axis. The model raises
                one if the axis does not divide `embedding_dim`.

        Example:

        >>> mesh = keras.distribution.DeviceMesh(
        ...     (1, 1), ("batch", "model"), ["cpu:0"])
        >>> layouts = keras_bft.models.SASRec.get_layout_map(mesh)
        >>> layouts["sas_rec/item_embedding/embeddings"].axes
        (None, 'model')
        """
        return item_layout_map(
            device_mesh, model_parallel_dim_name, data_parallel_dim_name
        )

    def compute_output_spec(
        self, items: Any, training: bool = False
    ) -> keras.KerasTensor:
        if isinstance(items, (tuple, list)):
            items = items[0]
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

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the compile arguments, `jit_compile` as it was given.

        Keras keeps what `"auto"` came to on this backend. A model saved on
        JAX would then compile on torch too, which takes minutes.
        """
        config: dict[str, Any] = super().get_compile_config()
        if config:
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
        largest = self.num_items + self.num_special_ids
        if isinstance(x, SequenceDataset):
            check_ids("x", np.array([x.max_item]), self.num_known_items)
        elif isinstance(x, (tuple, list)) and self.reads_timestamps:
            x = x[0]
        for name, ids, limit in (
            ("x", x, largest),
            ("y", y, self.num_known_items),
        ):
            if isinstance(ids, np.ndarray):
                check_ids(name, ids, limit)

    def score(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
    ) -> np.ndarray:
        """Scores every item as the next one of each history.

        Args:
            histories: One sequence of item ids per user, oldest first. Of a
                long history the newest `max_length` items are read. Or what
                `start` or `append` of a causal model returned.
            batch_size: Largest number of histories encoded at once.
            timestamps: One sequence of integer times per user, for a model
                that reads them. A `UserState` has its own.

        Returns:
            Scores of shape `(len(histories), num_items + 1)`, float32. Column
            0, padding, is minus infinity.

        Raises:
            ValueError: If a history is empty or holds an unknown id, or
                `timestamps` do not fit the histories or the model.
        """
        _, states = self._read(histories, batch_size, timestamps)
        return score_items(states, host_array(self.item_table()))

    def _read(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int,
        timestamps: Sequence[Any] | None,
    ) -> tuple[Sequence[np.ndarray], np.ndarray]:
        """Checked histories, and the state after each, `(n, D)` float32."""
        if isinstance(histories, UserState):
            self._check_user_state(histories, timestamps)
            return histories.histories, histories.states
        arrays = check_histories(histories, self.num_items)
        columns = [[self._input_ids(array) for array in arrays]]
        self.check_timestamps(timestamps)
        if timestamps is not None:
            ends = np.cumsum([len(array) for array in arrays])
            times = flatten_timestamps(timestamps, np.diff(ends, prepend=0))
            columns.append(np.split(times, ends[:-1]))
        states = np.zeros((len(arrays), self.embedding_dim), "float32")
        lengths = [min(len(ids), self.max_length) for ids in columns[0]]
        for users, length, rows in chunks_of_similar_length(
            lengths, self.max_length, batch_size
        ):
            batch = [
                padded_batch([column[user] for user in users], length, rows)
                for column in columns
            ]
            output = self.predict_on_batch(
                tuple(batch) if len(batch) > 1 else batch[0]
            )
            last = np.array(lengths)[users] - 1
            output = ops.convert_to_numpy(output)
            states[users] = output[np.arange(len(users)), last]
        return arrays, states

    def check_timestamps(self, timestamps: Any) -> None:
        """Raises a `ValueError` unless times are given where they are read."""
        if (timestamps is not None) == self.reads_timestamps:
            return
        reads = "reads" if self.reads_timestamps else "does not read"
        given = "no timestamps"
        if timestamps is not None:
            given = f"timestamps of {len(timestamps)} histories"
        raise ValueError(
            f"This {type(self).__name__} {reads} timestamps. Received: {given}"
        )

    def _check_user_state(self, state: UserState, timestamps: Any) -> None:
        largest = max((int(h.max()) for h in state.histories), default=0)
        if (
            timestamps is not None
            or state.states.shape[1:] != (self.embedding_dim,)
            or largest > self.num_items
        ):
            raise ValueError(
                "A `UserState` must come from this model, and has timestamps "
                "of its own. Received: states of shape "
                f"{state.states.shape} for embedding_dim={self.embedding_dim}, "
                f"items up to {largest} of {self.num_items}, "
                f"timestamps={'None' if timestamps is None else 'given'}"
            )

    def _input_ids(self, history: np.ndarray) -> np.ndarray:
        """Ids that the model reads; the last one's state gives the scores."""
        return history

    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Recommends the `k` best items after each history.

        Works for any history, also of users that were not seen in training.
        The catalogue is scored a part at a time, so memory does not grow with
        `batch_size * num_items`.

        Args:
            histories: One sequence of item ids per user, oldest first, or what
                `start` or `append` of a causal model returned.
            k: Number of items to recommend.
            filter_seen: Whether to leave out the items of the history, all of
                it. Defaults to `True`.
            batch_size: Largest number of histories read and scored at once.
            timestamps: As in `score()`.

        Returns:
            Item ids, int64, and scores, float32, both `(len(histories), k)`,
            best first; equal scores in the order of the ids. Where fewer than
            `k` items are left, the rest is id 0 with minus infinity.

        Raises:
            ValueError: If `k` is not from 1 to `num_items`, or as in
                `score()`.
        """
        if not 1 <= k <= self.num_items:
            raise ValueError(
                f"`k` must be from 1 to `num_items`={self.num_items}. "
                f"Received: k={k}"
            )
        seen, states = self._read(histories, batch_size, timestamps)
        table = host_array(self.item_table())
        ids = np.zeros((len(states), k), "int64")
        best = np.full((len(states), k), -np.inf, "float32")
        for start in range(0, len(states), batch_size):
            rows = slice(start, start + batch_size)
            ids[rows], best[rows] = best_items(
                states[rows], table, k, seen[rows] if filter_seen else None
            )
        return ids, best

    def add_items(
        self, categorical: Any = None, dense: Any = None
    ) -> "SequentialRecommender":
        """Returns a model of this one's items and new ones after them.

        New items have no embedding of their own and are known by their
        features, in histories as in scores. All else is copied.

        Args:
            categorical: Categories of the new items, `(n, columns)` int, if
                the model has such features.
            dense: Their dense features, `(n, columns)`, likewise.

        Returns:
            A model with `num_items + n` items, not compiled. Trained on, it
            learns of the known items alone.

        Raises:
            ValueError: If the model has no `item_features`, or the features do
                not fit those it has.

        Example:

        >>> features = {"categorical": [[0], [1], [2], [1]]}
        >>> model = keras_bft.models.SASRec(3, item_features=features)
        >>> more = model.add_items(categorical=[[2]])
        >>> more.score([[1, 2], [4]]).shape
        (2, 5)
        """
        return with_new_items(self, categorical, dense)

    def get_config(self) -> dict[str, Any]:
        encoder = layer = self.item_embedding
        features = None
        if isinstance(encoder, ItemEncoder):
            layer, features = encoder.id_embedding, encoder.feature_config()
        if not self._has_own_embedding:
            layer = keras.saving.serialize_keras_object(layer)
        return {
            **super().get_config(),
            "num_items": self.num_items,
            "max_length": self.max_length,
            "embedding_dim": self.embedding_dim,
            "seed": self.seed,
            "item_features": features,
            "item_embedding": None if self._has_own_embedding else layer,
        }
