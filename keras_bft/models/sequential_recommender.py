"""What all sequential recommenders share: ids, losses, scores, top-k."""

from typing import Any

import keras
from keras import ops

from keras_bft.layers import ItemEncoder
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._seeds import part_seed
from keras_bft.models._device_mesh import check_table_width
from keras_bft.models._device_mesh import item_layout_map
from keras_bft.models._history_scoring import HistoryScoring
from keras_bft.models._item_embedding import make_item_embedding
from keras_bft.models._item_embedding import with_new_items
from keras_bft.typing import Tensor


class SequentialRecommender(HistoryScoring):
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
            part_seed(seed, 2),
            self.dtype_policy,
        )
        self._has_own_embedding = item_embedding is None
        self.negative_seed = keras.random.SeedGenerator(part_seed(seed, 1))

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
