"""A recommender that a server runs: from histories to the best items."""

from typing import Any

import keras
from keras import ops

from keras_bft.models._export import ExportableModel
from keras_bft.models._top_k import check_k
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class TopKRecommender(ExportableModel):
    """Recommends the best items after each history, as one graph.

    What `recommend` of the model returns, without its checks, for `export`:
    the artefact turns item ids into recommendations, and the server needs
    neither Keras nor this library. It holds scores of the whole catalogue,
    `(B, num_items)`.

    Args:
        recommender: A model of `keras_bft.models`.
        k: Number of items, from 1 to `num_items`. Defaults to `10`.
        filter_seen: Whether to leave out the items of the history that is
            given. Defaults to `True`.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        items: `(B, T)` int, the newest items of each history, oldest first, 0
            pads at either side. `T` is at most `max_length`, of `BERT4Rec` one
            less. Or a pair of those and their times, where the model reads
            times.

    Returns:
        Item ids, `(B, k)` int32, and scores, `(B, k)` float32, best first.
        Where fewer than `k` items are left, id 0 with minus infinity.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> server = keras_bft.models.TopKRecommender(model, k=4)
    >>> ids, scores = server(np.array([[3, 5, 7], [2, 0, 0]]))
    >>> tuple(ids.shape)
    (2, 4)

    On TensorFlow `server.export("recommender")` writes it as a SavedModel; on
    PyTorch `format="onnx"` or `"torch"` works, on JAX none does.
    """

    takes_top_k = True
    output_names_of_export = ("ids", "scores")

    def __init__(
        self,
        recommender: SequentialRecommender,
        k: int = 10,
        filter_seen: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(recommender, SequentialRecommender):
            raise ValueError(
                "`recommender` must be a model of `keras_bft.models`. "
                f"Received: recommender={recommender!r}"
            )
        check_k(k, recommender.num_items)
        self.recommender = recommender
        self.reads_timestamps = recommender.reads_timestamps
        self.k = k
        self.filter_seen = filter_seen

    def build(self, items_shape: Any) -> None:
        if not self.recommender.built:
            self.recommender.build(items_shape)
        self.built = True

    def call(self, items: Any) -> tuple[Tensor, Tensor]:
        model = self.recommender
        items, *times = items if self.reads_timestamps else (items,)
        items = ops.cast(items, "int32")
        states, last = model.encode_last(items, *times)
        # Keras' `take_along_axis` fixes the lengths of an export of PyTorch.
        index = ops.cumsum(ops.ones_like(states[:, :, :1]), axis=1) - 1
        is_last = ops.equal(index, ops.cast(last[:, None, None], index.dtype))
        state = ops.sum(ops.where(is_last, states, 0.0), axis=1)
        table = ops.cast(model.item_table()[1:], "float32")
        scores = ops.matmul(ops.cast(state, "float32"), ops.transpose(table))
        if not self.filter_seen:
            best, columns = ops.top_k(scores, self.k)
            return ops.cast(columns, "int32") + 1, best
        # As many more as a history can take away.
        best, columns = ops.top_k(
            scores, min(self.k + model.max_length, model.num_items)
        )
        ids = ops.cast(columns, "int32") + 1
        seen = ops.any(ops.equal(ids[:, :, None], items[:, None, :]), axis=-1)
        best, columns = ops.top_k(ops.where(seen, -float("inf"), best), self.k)
        place = ops.arange(ids.shape[1], dtype="int32")
        chosen = ops.equal(ops.cast(columns, "int32")[:, :, None], place)
        ids = ops.sum(ops.where(chosen, ids[:, None, :], 0), axis=-1)
        return ops.where(ops.isfinite(best), ids, 0), best

    def compute_output_spec(self, items: Any) -> Any:
        items = items[0] if self.reads_timestamps else items
        shape = (items.shape[0], self.k)
        return (
            keras.KerasTensor(shape, "int32"),
            keras.KerasTensor(shape, "float32"),
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "recommender": keras.saving.serialize_keras_object(
                self.recommender
            ),
            "k": self.k,
            "filter_seen": self.filter_seen,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TopKRecommender":
        recommender = keras.saving.deserialize_keras_object(
            config["recommender"]
        )
        return cls(**{**config, "recommender": recommender})
