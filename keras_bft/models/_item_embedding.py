"""The layer that embeds the items of a recommender."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers import ItemEncoder
from keras_bft.typing import Tensor


def make_item_embedding(
    num_items: int,
    num_special_ids: int,
    embedding_dim: int,
    layer: Any,
    item_features: dict[str, Any] | None,
    seed: int | None,
    dtype: Any,
) -> keras.layers.Layer:
    """Returns the layer of ids 0 to `num_items + num_special_ids`.

    Args:
        num_items: Number of items.
        num_special_ids: Number of ids after these.
        embedding_dim: Width of the vectors.
        layer: The layer of the ids, or its config; `None` for an `Embedding`.
        item_features: Arguments of `ItemEncoder`, if there is to be one.
        seed: Seed of its dropout.
        dtype: Dtype policy.

    Raises:
        TypeError: If `layer` has no table, or `item_features` is no dict.
        ValueError: If the table has another shape, or as in `ItemEncoder`.
    """
    if item_features is not None and not isinstance(item_features, dict):
        raise TypeError(
            "`item_features` must be a dict of arguments of "
            "`keras_bft.layers.ItemEncoder`, such as `{'categorical': array}`. "
            f"Received: item_features of type {type(item_features).__name__}"
        )
    features = item_features or {}
    name = "item_embedding" if item_features is None else "id_embedding"
    rows = num_items + 1 + num_special_ids - features.get("num_new_items", 0)
    if layer is None:
        layer = keras.layers.Embedding(
            rows,
            embedding_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=embedding_dim**-0.5
            ),
            dtype=dtype,
            name=name,
        )
    else:
        layer = _given(layer)
        if (layer.input_dim, layer.output_dim) != (rows, embedding_dim):
            raise ValueError(
                "`item_embedding` must have a row for padding, for each item "
                "with an id embedding and for each special id, and "
                f"`embedding_dim` columns, ({rows}, {embedding_dim}). "
                f"Received: ({layer.input_dim}, {layer.output_dim})"
            )
    if item_features is None:
        return layer
    return ItemEncoder(
        layer,
        num_items,
        seed=seed,
        dtype=dtype,
        name="item_embedding",
        **item_features,
    )


def _given(layer: Any) -> keras.layers.Layer:
    if isinstance(layer, dict):
        layer = keras.saving.deserialize_keras_object(layer)
    if isinstance(layer, (keras.layers.Embedding, DistributedTable)):
        return layer
    if hasattr(layer, "get_embedding_tables"):
        return DistributedTable(layer)
    raise TypeError(
        "`item_embedding` must be a `keras.layers.Embedding` or a "
        "`keras_rs.layers.DistributedEmbedding` of one feature. "
        f"Received: item_embedding of type {type(layer).__name__}"
    )


@keras.saving.register_keras_serializable(package="keras_bft")
class DistributedTable(keras.layers.Layer):
    """A `keras_rs.layers.DistributedEmbedding` used as an `Embedding`.

    Args:
        layer: The layer, with one feature.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        ids: Integer ids of any shape.

    Returns:
        Vectors `(*ids.shape, D)`.

    Raises:
        ValueError: If the layer has another number of features.
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(**{"name": "item_embedding", **kwargs})
        if isinstance(layer, dict):
            layer = keras.saving.deserialize_keras_object(layer)
        config = layer.get_config()
        features = config["feature_configs"]
        # Either the config of the one feature, or that by a name.
        self.feature = None
        if "table" not in features or isinstance(features["table"], dict):
            if len(features) != 1:
                raise ValueError(
                    "`item_embedding` must have one feature, the item's id. "
                    f"Received: a layer with {sorted(features)}"
                )
            (self.feature,) = features
        (table,) = config["tables"]
        self.layer = layer
        self.table_name = table["name"]
        self.input_dim = table["vocabulary_size"]
        self.output_dim = table["embedding_dim"]

    @property
    def embeddings(self) -> Tensor:
        """The table, `(input_dim, D)`."""
        return self.layer.get_embedding_tables()[self.table_name]

    def _inputs(self, ids: Any) -> Any:
        return ids if self.feature is None else {self.feature: ids}

    def build(self, ids_shape: tuple[int | None, ...]) -> None:
        self.layer.build(self._inputs((*ids_shape, 1)))
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        # It reduces the last axis, here one item.
        vectors = self.layer(self._inputs(ops.expand_dims(ids, -1)))
        return vectors if self.feature is None else vectors[self.feature]

    def compute_output_spec(self, ids: keras.KerasTensor) -> keras.KerasTensor:
        return keras.KerasTensor(
            (*ids.shape, self.output_dim), dtype=self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "layer": keras.saving.serialize_keras_object(self.layer),
        }


def with_new_items(model: Any, categorical: Any, dense: Any) -> Any:
    """See `SequentialRecommender.add_items`."""
    encoder = model.item_embedding
    if not isinstance(encoder, ItemEncoder):
        raise ValueError(
            "Only a model with `item_features` can tell new items apart. "
            "Received: item_features=None"
        )
    if not model.built:
        model.build((None, model.max_length))
    features = {}
    for name, columns, new in (
        ("categorical", len(encoder.num_categories), categorical),
        ("dense", encoder.num_dense, dense),
    ):
        if columns == 0 and new is None:
            continue
        rows = np.asarray([] if new is None else new)
        if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
            raise ValueError(
                f"`{name}` must have a row for each new item, of {columns} "
                f"columns as `item_features` has. Received: {name} of shape "
                f"{None if new is None else rows.shape}"
            )
        held = ops.convert_to_numpy(getattr(encoder, name))
        features[name] = np.concatenate([held, rows])
    if len({len(rows) for rows in features.values()}) != 1:
        raise ValueError(
            "`categorical` and `dense` must have as many rows. Received: "
            f"{len(categorical)} and {len(dense)}"
        )
    (num_new, *_) = (len(rows) for rows in features.values())
    num_new -= model.num_items + 1
    more = type(model).from_config(
        model.get_config()
        | {
            "num_items": model.num_items + num_new,
            "item_features": encoder.feature_config()
            | features
            | {"num_new_items": encoder.num_new_items + num_new},
        }
    )
    more.build((None, model.max_length))
    grown = [getattr(more.item_embedding, name) for name in features]
    for weight, old in zip(more.weights, model.weights, strict=True):
        if not any(weight is feature for feature in grown):
            weight.assign(np.array(ops.convert_to_numpy(old)))
    return more
