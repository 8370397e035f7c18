"""HSTU, plain or as a Bayesian filter."""

from typing import Any

import keras

from keras_bft.layers import BFTHSTULayer
from keras_bft.layers._filter_layer import check_positive
from keras_bft.models.filter_recommender import FilterRecommender
from keras_bft.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_bft")
class HSTU(FilterRecommender):
    """Hierarchical sequential transduction unit, plain or Bayesian.

    The recommender of Zhai et al. 2024 (arXiv 2402.17152): causal layers of
    pointwise SiLU attention without softmax, with learned biases for relative
    positions and, if `num_time_buckets` is given, for the time between two
    items. With `bayesian=True` its layers filter (see `BFTHSTULayer`; derived
    for this library) and every item has a learned prior precision.

    Args:
        num_items: Size of the catalogue. Items are 1 to `num_items`, 0 pads.
        max_length: Number of newest items read. Defaults to `50`.
        embedding_dim: Width D of the states. Defaults to `64`.
        num_layers: Number of layers. Defaults to `2`.
        num_heads: Number of attention heads. Defaults to `2`.
        head_dim: Channels of a head. Defaults to `D // num_heads`.
        num_time_buckets: Largest bucket of time intervals, 128 in the
            original. Defaults to `0`: the model reads items alone. Otherwise
            it reads `(items, timestamps)`, times in seconds: give `timestamps`
            to `SequenceDataset`, `score()` and `recommend()`.
        dropout: Dropout of embeddings and layers. Defaults to `0.5`.
        bayesian: Whether the layers filter. Defaults to `True`.
        form: `"full"` (default) or `"light"`, see `BFTHSTULayer`.
        prior: As in `SASRec`.
        precision: `"channel"` (default) or `"token"`.
        carry_units: As in `SASRec`.
        strength: Filter strength. Defaults to `1.0`.
        trainable_strength: Whether each layer learns its strength.
        scale_embeddings: As in `SASRec`.
        layer_options: Other arguments of `BFTHSTULayer` by name.
        seed: Seed of dropout and of sampled negatives. Initial weights follow
            `keras.utils.set_random_seed`.
        **kwargs: `item_features`, what is known of the items besides their
            ids, and `item_embedding`, the layer of the ids, see
            `SequentialRecommender`; arguments of `keras.Model`.

    Call arguments:
        items: `(B, T)` int, `T <= max_length`, or a pair of those and their
            times, `(B, T)` int.

    Returns:
        States `(B, T, D)`. `score()` and `recommend()` give item scores.

    Raises:
        ValueError: If an argument is outside its domain, or timestamps are
            missing or not expected.

    Example:

    >>> model = keras_bft.models.HSTU(
    ...     num_items=20, max_length=8, num_time_buckets=16)
    >>> model.compile("adam", loss=keras_bft.losses.FullSoftmax())
    >>> data = keras_bft.data.SequenceDataset(
    ...     [[3, 5, 7, 9], [2, 4, 6]], max_length=8,
    ...     timestamps=[[0, 60, 3600, 86400], [10, 20, 30]])
    >>> history = model.fit(data, verbose=0)
    >>> ids, scores = model.recommend(
    ...     [[3, 5, 7], [2]], k=4, timestamps=[[0, 60, 3600], [10]])
    >>> ids.shape
    (2, 4)
    """

    def __init__(
        self,
        num_items: int,
        max_length: int = 50,
        embedding_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 2,
        head_dim: int | None = None,
        num_time_buckets: int = 0,
        dropout: float = 0.5,
        bayesian: bool = True,
        form: str = "full",
        prior: str = "item",
        precision: str = "channel",
        carry_units: bool = True,
        strength: float = 1.0,
        trainable_strength: bool = False,
        scale_embeddings: bool = True,
        layer_options: dict[str, Any] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_items,
            max_length,
            embedding_dim,
            dropout,
            bayesian,
            prior,
            carry_units,
            scale_embeddings,
            seed,
            **kwargs,
        )
        check_positive("num_layers", num_layers)
        shared = {
            "num_heads": num_heads,
            "head_dim": head_dim,
            "num_time_buckets": num_time_buckets,
            "form": form,
            "precision": precision,
            "strength": strength,
            "trainable_strength": trainable_strength,
        }
        self._arguments |= shared | {
            "num_layers": num_layers,
            "layer_options": layer_options,
        }
        self.reads_timestamps = num_time_buckets > 0
        options = {
            **shared,
            "max_length": max_length,
            "carry_units": carry_units,
            "initial_log_process_noise": self.initial_log_variance - 2.0,
            "dropout": dropout,
            "bayesian": bayesian,
            **(layer_options or {}),
        }
        self.blocks = [
            BFTHSTULayer(
                seed=self.layer_seed(index),
                dtype=self.dtype_policy,
                name=f"block_{index}",
                **self.layer_options(options, index == num_layers - 1),
            )
            for index in range(num_layers)
        ]

    def call(
        self,
        items: Tensor | tuple[Tensor, Tensor],
        training: bool = False,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        times = None
        is_pair = isinstance(items, (tuple, list))
        if is_pair != self.reads_timestamps:
            raise ValueError(
                f"A model with num_time_buckets={self.num_time_buckets} reads "
                f"{'items and' if self.reads_timestamps else 'no'} timestamps. "
                f"Received: {'a pair' if is_pair else 'items alone'}"
            )
        if is_pair:
            items, times = items
        state, _ = self.encode(
            items,
            training=training,
            attention_mask=attention_mask,
            timestamps=times,
        )
        return self.read_out(state)[0]

    def cache_inputs(
        self, position: Tensor, timestamps: Tensor | None
    ) -> dict[str, Any]:
        return {"position": position, "timestamps": timestamps}

    @property
    def num_time_buckets(self) -> int:
        """Largest bucket of time intervals, zero if times are not read."""
        buckets: int = self._arguments["num_time_buckets"]
        return buckets
