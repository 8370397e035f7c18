"""Transformers over a history of items, plain or as a Bayesian filter."""

import math
from typing import Any

import keras
from keras import ops

from keras_bft.layers import BFTLayer
from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import StateNormalization
from keras_bft.layers._filter_layer import check_positive
from keras_bft.models._item_prior import make_prior
from keras_bft.models._item_prior import prior_log_precision
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.typing import Tensor


class TransformerRecommender(SequentialRecommender):
    """Base of `SASRec` and `BERT4Rec`: embeddings, filter layers, final norm.

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
        super().__init__(num_items, max_length, embedding_dim, seed, **kwargs)
        check_positive("num_layers", num_layers)
        self._arguments = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "feed_forward_dim": feed_forward_dim,
            "dropout": dropout,
            "bayesian": bayesian,
            "form": form,
            "prior": prior,
            "precision": precision,
            "key_precision": key_precision,
            "carry_units": carry_units,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "scale_embeddings": scale_embeddings,
            "gated_attention": gated_attention,
            "dropout_mode": dropout_mode,
            "activation": keras.activations.serialize(
                keras.activations.get(activation)
            ),
            "normalize_first": normalize_first,
            "layer_options": layer_options,
        }
        self.bayesian = bayesian
        self.input_scale = embedding_dim**0.5 if scale_embeddings else 1.0
        log_variance = 0.0
        if carry_units:
            stddev = self.input_scale * self.embedding_stddev
            log_variance = 2.0 * math.log(stddev)

        # === Layers ===
        self.position_embedding = keras.layers.Embedding(
            max_length,
            embedding_dim,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=self.embedding_stddev
            ),
            dtype=self.dtype_policy,
            name="position_embedding",
        )
        self.embedding_dropout = keras.layers.Dropout(
            dropout,
            seed=seed,
            dtype=self.dtype_policy,
            name="embedding_dropout",
        )
        shared: dict[str, Any] = {
            "causal": self.causal,
            "form": form,
            "precision": precision,
            "key_precision": key_precision,
            "carry_units": carry_units,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "gated_attention": gated_attention,
            "initial_log_process_noise": log_variance - 2.0,
            "activation": activation,
            "normalize_first": normalize_first,
            "dropout": dropout,
            "dropout_mode": dropout_mode,
            "bayesian": bayesian,
        }
        self.blocks = [
            BFTLayer(
                num_heads,
                (
                    embedding_dim
                    if feed_forward_dim is None
                    else feed_forward_dim
                ),
                # The scores do not read the last layer's precision.
                trainable_process_noise=index < num_layers - 1,
                seed=None if seed is None else seed + 10 * (index + 1),
                dtype=self.dtype_policy,
                name=f"block_{index}",
                **shared | (layer_options or {}),
            )
            for index in range(num_layers)
        ]
        self.final_norm = StateNormalization(
            dtype=self.dtype_policy, name="final_norm"
        )
        self.prior = None
        if bayesian:
            num_ids = self.item_embedding.input_dim
            self.prior = make_prior(
                prior, num_ids, -log_variance, self.dtype_policy
            )

    def build(self, items_shape: tuple[int | None, ...]) -> None:
        states_shape = (*items_shape, self.embedding_dim)
        precision_shape = (*items_shape, 1) if self.bayesian else None
        self.item_embedding.build(items_shape)
        self.position_embedding.build(items_shape)
        for block in self.blocks:
            block.build(states_shape, precision_shape)
        self.final_norm.build(states_shape)
        if self.prior is not None:
            reads_ids = isinstance(self.prior, PrecisionEmbedding)
            self.prior.build(items_shape if reads_ids else states_shape)
        self.built = True

    def encode(
        self, items: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """States after the last layer, and their log-precision.

        Args:
            items: `(B, T)` int, 0 is padding.
            training: Whether to use dropout.

        Returns:
            States `(B, T, D)` before the final norm and log-precision
            `(B, T, D)` or `(B, T, 1)`, float32; `None` for a plain model.

        Raises:
            ValueError: If `T` is greater than `max_length`.
        """
        items = ops.convert_to_tensor(items)
        if items.shape[1] is not None and items.shape[1] > self.max_length:
            raise ValueError(
                f"`items` is longer than `max_length`={self.max_length}. Keep "
                "the newest items of each history. "
                f"Received: items of shape {tuple(items.shape)}"
            )
        real = ops.not_equal(items, 0)
        position = ops.cumsum(ops.cast(real, "int32"), axis=1) - 1
        position = ops.maximum(position, 0)
        embedded = self.item_embedding(items)
        state = embedded + self.position_embedding(position)
        state = state * self.input_scale
        state = self.embedding_dropout(state, training=training)
        log_precision = prior_log_precision(
            self.prior, items, embedded * self.input_scale
        )
        for block in self.blocks:
            output = block(
                state, log_precision, padding_mask=real, training=training
            )
            state, log_precision = output if self.bayesian else (output, None)
        return state, log_precision

    def call(self, items: Tensor, training: bool = False) -> Tensor:
        state, _ = self.encode(items, training=training)
        return self.final_norm(state)[0]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._arguments}
