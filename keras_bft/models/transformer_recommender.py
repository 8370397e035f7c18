"""Transformers over a history of items, plain or as a Bayesian filter."""

from typing import Any

import keras

from keras_bft.layers import BFTLayer
from keras_bft.layers._filter_layer import check_positive
from keras_bft.models.filter_recommender import FilterRecommender


class TransformerRecommender(FilterRecommender):
    """Base of `SASRec` and `BERT4Rec`, whose layers are `BFTLayer`s.

    See `SASRec` for the arguments. A subclass says by `causal` whether a
    position sees those after it.
    """

    causal = True

    def __init__(
        self,
        num_items: int,
        max_length: int = 50,
        embedding_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 2,
        feed_forward_dim: int | None = None,
        dropout: float = 0.5,
        bayesian: bool = True,
        form: str = "full",
        prior: str = "item",
        precision: str = "channel",
        key_precision: str = "shared",
        carry_units: bool = True,
        strength: float = 1.0,
        trainable_strength: bool = False,
        scale_embeddings: bool = True,
        gated_attention: bool = False,
        dropout_mode: str = "inverted",
        activation: Any = "gelu",
        normalize_first: bool = True,
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
        shared: dict[str, Any] = {
            "form": form,
            "precision": precision,
            "key_precision": key_precision,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "gated_attention": gated_attention,
            "dropout_mode": dropout_mode,
            "activation": keras.activations.serialize(
                keras.activations.get(activation)
            ),
            "normalize_first": normalize_first,
        }
        self._arguments |= shared | {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "feed_forward_dim": feed_forward_dim,
            "layer_options": layer_options,
        }
        options = {
            **shared,
            "feed_forward_dim": (
                embedding_dim if feed_forward_dim is None else feed_forward_dim
            ),
            "causal": self.causal,
            "carry_units": carry_units,
            "initial_log_process_noise": self.initial_log_variance - 2.0,
            "dropout": dropout,
            "bayesian": bayesian,
            **(layer_options or {}),
        }
        self.blocks = [
            BFTLayer(
                num_heads,
                seed=self.layer_seed(index),
                dtype=self.dtype_policy,
                name=f"block_{index}",
                **self.layer_options(options, index == num_layers - 1),
            )
            for index in range(num_layers)
        ]
