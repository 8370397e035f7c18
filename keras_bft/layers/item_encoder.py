"""Items by their ids and by what is known of them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import check_rate
from keras_bft.layers._item_arrays import checked_categorical
from keras_bft.layers._item_arrays import checked_dense
from keras_bft.layers._item_arrays import checked_sizes
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class ItemEncoder(keras.layers.Layer):
    """Vectors of items: an embedding of the id plus embeddings of features.

    ```
    v_i = e_i + sum_c E_c[categorical_ic] + dense_i W
    ```

    so that an item of which no interaction is known has a vector, too. The
    features are weights of the layer that are not trained, and are saved with
    it. `E` and `W` start at zero: at first an item is its id, and a category
    that no item of the training has says nothing.

    **New items.** The last `num_new_items` items have no embedding of their
    own, `e_i = 0`; the table of ids has no rows for them. For features to be
    able to stand alone, training drops the ids of some items (`id_dropout`,
    the idea of DropoutNet), and what then stands in their place in a batch is
    what stands for a new item.

    Args:
        id_embedding: The layer of the ids, with a table `embeddings` of
            `num_items - num_new_items + 1` rows or more: 0 is padding, those
            after the items are special ids such as a mask, without features.
        num_items: Number of items. They are 1 to `num_items`.
        categorical: Categories of the items, `(num_items + 1, columns)` int; 0
            is none or unknown. Row 0, padding, is not read. Defaults to
            `None`: no columns, or, with `num_categories`, nothing known yet.
        dense: Numbers that tell of the items, `(num_items + 1, columns)`,
            finite; standardize them. Row 0 is not read. Defaults to `None`,
            as with `categorical`.
        num_categories: Number of values of each column of `categorical`, 0
            included. Defaults to what they have; give more if items will come
            with others.
        num_dense: Number of columns of `dense`, if it is not given.
        num_new_items: Number of the last items that have no id embedding.
            Defaults to `0`.
        id_dropout: Share of items whose ids are dropped in training. Defaults
            to `0.1`.
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        ids: Integer ids of any shape, 0 where there is no item.
        id_rows: What `id_rows(ids)` returned, if it is needed elsewhere, too.

    Returns:
        Vectors `(*ids.shape, D)`, D the width of `id_embedding`; zero for
        padding. `table()` has those of all items.

    Raises:
        ValueError: If features have another number of rows, are negative, not
            integers or not finite, if there are none, or if another argument
            is outside its domain.

    Example:

    >>> encoder = keras_bft.layers.ItemEncoder(
    ...     keras.layers.Embedding(4, 8),
    ...     num_items=4,
    ...     categorical=[[0], [1], [2], [1], [2]],
    ...     num_new_items=1)
    >>> encoder(np.array([[1, 4, 0]])).shape[-1]
    8
    >>> _ = encoder.category_embeddings.assign(np.ones((3, 8)))
    >>> table = keras.ops.convert_to_numpy(encoder.table())
    >>> table[4, :3].tolist()  # An item by its category alone.
    [1.0, 1.0, 1.0]

    Reference:

    - Volkovs, Yu and Poutanen, "DropoutNet: Addressing Cold Start in
      Recommender Systems", NeurIPS 2017.
    """

    def __init__(
        self,
        id_embedding: keras.layers.Layer,
        num_items: int,
        categorical: Any = None,
        dense: Any = None,
        num_categories: Sequence[int] | None = None,
        num_dense: int | None = None,
        num_new_items: int = 0,
        id_dropout: float = 0.1,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive("num_items", num_items)
        check_rate("id_dropout", id_dropout)
        if not 0 <= num_new_items < num_items:
            raise ValueError(
                "`num_new_items` must be at least 0 and leave items that are "
                f"trained, of `num_items`={num_items}. "
                f"Received: num_new_items={num_new_items}"
            )
        if isinstance(id_embedding, dict):
            id_embedding = keras.saving.deserialize_keras_object(id_embedding)
        self.id_embedding = id_embedding
        self.num_items = num_items
        self.num_new_items = num_new_items
        self.num_known_items = num_items - num_new_items
        self.id_dropout = id_dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.num_categories = checked_sizes(num_categories, categorical)
        self._features = (
            checked_categorical(
                categorical, num_items + 1, self.num_categories
            ),
            checked_dense(dense, num_items + 1, num_dense),
        )
        self.num_dense = self._features[1].shape[1]
        if not self.num_categories and not self.num_dense:
            raise ValueError(
                "An item needs features: give `categorical` or `dense`. "
                f"Received: categorical={categorical}, dense={dense}"
            )
        if id_embedding.input_dim <= self.num_known_items:
            raise ValueError(
                "`id_embedding` must have a row for padding and for each item "
                f"that is not new, {self.num_known_items + 1}. Received: "
                f"id_embedding.input_dim={id_embedding.input_dim}"
            )
        # Of each column in the one table of all.
        self._offsets = np.cumsum([0, *self.num_categories])

    @property
    def input_dim(self) -> int:
        """Number of rows of the table of ids."""
        rows: int = self.id_embedding.input_dim
        return rows

    @property
    def output_dim(self) -> int:
        """Width of the vectors."""
        width: int = self.id_embedding.output_dim
        return width

    def build(self, ids_shape: tuple[int | None, ...]) -> None:
        if not self.id_embedding.built:
            self.id_embedding.build(ids_shape)
        categories, numbers = self._features
        if self.num_categories:
            self.categorical = self._add_feature("categorical", categories)
            self.category_embeddings = self.add_weight(
                shape=(int(self._offsets[-1]), self.output_dim),
                initializer="zeros",
                name="category_embeddings",
            )
        if self.num_dense:
            self.dense = self._add_feature("dense", numbers)
            self.dense_kernel = self.add_weight(
                shape=(self.num_dense, self.output_dim),
                initializer="zeros",
                name="dense_kernel",
            )
        self.built = True

    def _add_feature(self, name: str, values: np.ndarray) -> keras.Variable:
        return self.add_weight(
            shape=values.shape,
            initializer=lambda shape, dtype=None: ops.convert_to_tensor(
                values, dtype=dtype
            ),
            dtype=values.dtype.name,
            trainable=False,
            name=name,
        )

    def id_rows(self, ids: Tensor, training: bool = False) -> Tensor:
        """Row of each id in the table of ids.

        Args:
            ids: Integer ids.
            training: Whether to drop some, afresh at every call.

        Returns:
            Integers of the shape of `ids`: 0 for padding, new items and ids
            that are dropped.
        """
        ids = ops.cast(ids, "int32")
        is_special = ids > self.num_items
        rows = ops.where(is_special, ids - self.num_new_items, ids)
        has_id = ops.logical_or(is_special, ids <= self.num_known_items)
        if training and self.id_dropout > 0.0:
            draws = keras.random.uniform(
                ops.shape(ids), dtype="float32", seed=self.seed_generator
            )
            kept = ops.logical_or(is_special, draws >= self.id_dropout)
            has_id = ops.logical_and(has_id, kept)
        return ops.where(has_id, rows, 0)

    def call(
        self, ids: Tensor, id_rows: Tensor | None = None, training: bool = False
    ) -> Tensor:
        ids = ops.cast(ids, "int32")
        if id_rows is None:
            id_rows = self.id_rows(ids, training)
        return self._with_features(ids, id_rows, self.id_embedding(id_rows))

    def table(self, known: bool = False, training: bool = False) -> Tensor:
        """Vectors of padding and all items, float32.

        Computed anew at each call, which costs about as much as Adam's update
        of a table of that size for each column of features.

        Args:
            known: Whether to leave out the new items.
            training: Whether to drop ids.

        Returns:
            `(num_items + 1, D)`, or `(num_items - num_new_items + 1, D)`.
        """
        items = self.num_known_items if known else self.num_items
        ids = ops.arange(items + 1, dtype="int32")
        rows = self.id_rows(ids, training)
        table = ops.convert_to_tensor(self.id_embedding.embeddings)
        return self._with_features(ids, rows, ops.take(table, rows, axis=0))

    def _with_features(
        self, ids: Tensor, id_rows: Tensor, vectors: Tensor
    ) -> Tensor:
        vectors = ops.where(ops.expand_dims(id_rows > 0, -1), vectors, 0.0)
        # Special ids have the features of padding, none.
        items = ops.where(ids > self.num_items, 0, ids)
        if self.num_categories:
            categories = ops.take(self.categorical, items, axis=0)
        for column, offset in enumerate(self._offsets[:-1]):
            category = categories[..., column]
            embedded = ops.take(
                self.category_embeddings, category + int(offset), axis=0
            )
            vectors = vectors + ops.where(
                ops.expand_dims(category > 0, -1),
                ops.cast(embedded, vectors.dtype),
                0.0,
            )
        if self.num_dense:
            projected = ops.matmul(
                ops.take(self.dense, items, axis=0), self.dense_kernel
            )
            vectors = vectors + ops.cast(projected, vectors.dtype)
        return vectors

    def compute_output_spec(
        self,
        ids: keras.KerasTensor,
        id_rows: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        return keras.KerasTensor(
            (*ids.shape, self.output_dim), dtype=self.compute_dtype
        )

    def feature_config(self) -> dict[str, Any]:
        """Returns the arguments that tell of the features, by their sizes."""
        return {
            "num_categories": list(self.num_categories),
            "num_dense": self.num_dense,
            "num_new_items": self.num_new_items,
            "id_dropout": self.id_dropout,
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, sizes in place of the features.

        The features are weights, and come back with these.
        """
        id_embedding = keras.saving.serialize_keras_object(self.id_embedding)
        # The shape of the ids that it has seen first.
        id_embedding.pop("build_config", None)
        return {
            **super().get_config(),
            "id_embedding": id_embedding,
            "num_items": self.num_items,
            "seed": self.seed,
            **self.feature_config(),
        }
