"""SASRec, plain or as a Bayesian filter."""

import math
from typing import Any

import keras
from keras import ops

from keras_bft.layers import BFTLayer
from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import PrecisionMLP
from keras_bft.layers import StateNormalization
from keras_bft.layers._filter_layer import check_choice
from keras_bft.layers._filter_layer import check_positive
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.typing import Tensor

PRIORS = ("item", "mlp")


@keras.saving.register_keras_serializable(package="keras_bft")
class SASRec(SequentialRecommender):
    """Self-attentive sequential recommender, plain or Bayesian.

    A causal Transformer over a user's items that predicts the next one. With
    `bayesian=True` its layers are `BFTLayer`s and every item has a learned
    prior precision; with `False` they are standard layers. All else is the
    same code, so that a comparison is of the filter alone; under the same
    `keras.utils.set_random_seed` both start from the same weights.

    Positions are counted from the first kept item. Padding may stand at the
    right (as `keras_bft.data` pads) or at the left.

    Args:
        num_items: Size of the catalogue. Items are 1 to `num_items`, 0 pads.
        max_length: Number of newest items read. Defaults to `50`.
        embedding_dim: Width D of the states. Defaults to `64`.
        num_layers: Number of layers. Defaults to `2`.
        num_heads: Number of attention heads. Defaults to `2`.
        feed_forward_dim: Width of the feed-forward network. Defaults to D.
        dropout: Dropout of embeddings, attention and layers. Defaults to
            `0.5`.
        bayesian: Whether the layers filter. Defaults to `True`.
        form: `"full"` (default) or `"light"`, see `BFTLayer`.
        prior: Prior precision per `"item"` (default) or from a small network
            on the embeddings (`"mlp"`).
        precision: `"channel"` (default) or `"token"`, see `BFTLayer`.
        key_precision: `"shared"` (default) or `"per_head"`.
        carry_units: Whether precisions change units with the values. Defaults
            to `True`. Then the prior starts at minus the log of the variance
            of the embeddings and the process noise at that variance times
            `exp(-2)`; without it at 0 and -2.
        strength: Filter strength. Defaults to `1.0`.
        trainable_strength: Whether each layer learns its strength.
        scale_embeddings: Whether embeddings are multiplied by `sqrt(D)` on the
            way in, so that states start at a variance of one, the scale of
            what attention adds to them. Defaults to `True`.
        dropout_mode: `"renormalized"` or `"inverted"` (default): what a
            dropped attention weight means, see `AttentionDropout`. It applies
            to the plain model too.
        activation: Activation of the feed-forward network.
        normalize_first: Pre-norm (default) or post-norm layers.
        seed: Seed of dropout and of sampled negatives. Initial weights follow
            `keras.utils.set_random_seed`.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        items: `(B, T)` int, `T <= max_length`.

    Returns:
        States `(B, T, D)`. `score()` and `recommend()` give item scores.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> model = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> model.compile("adam", loss=keras_bft.losses.FullSoftmax())
    >>> items = np.array([[3, 5, 7, 0], [2, 4, 6, 8]])
    >>> next_items = np.array([[5, 7, 9, 0], [4, 6, 8, 10]])
    >>> history = model.fit(items, next_items, verbose=0)
    >>> ids, scores = model.recommend([[3, 5, 7], [2]], k=4)
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
        dropout_mode: str = "inverted",
        activation: Any = "gelu",
        normalize_first: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_items, max_length, embedding_dim, seed, **kwargs)
        check_choice("prior", prior, PRIORS)
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
            "dropout_mode": dropout_mode,
            "activation": keras.activations.serialize(
                keras.activations.get(activation)
            ),
            "normalize_first": normalize_first,
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
        self.blocks = [
            BFTLayer(
                num_heads,
                (
                    embedding_dim
                    if feed_forward_dim is None
                    else feed_forward_dim
                ),
                causal=True,
                form=form,
                precision=precision,
                key_precision=key_precision,
                carry_units=carry_units,
                strength=strength,
                trainable_strength=trainable_strength,
                initial_log_process_noise=log_variance - 2.0,
                # The scores do not read the last layer's precision.
                trainable_process_noise=index < num_layers - 1,
                activation=activation,
                normalize_first=normalize_first,
                dropout=dropout,
                dropout_mode=dropout_mode,
                bayesian=bayesian,
                seed=None if seed is None else seed + 10 * (index + 1),
                dtype=self.dtype_policy,
                name=f"block_{index}",
            )
            for index in range(num_layers)
        ]
        self.final_norm = StateNormalization(
            dtype=self.dtype_policy, name="final_norm"
        )
        self.prior = None
        if bayesian and prior == "item":
            self.prior = PrecisionEmbedding(
                num_items + 1, -log_variance, dtype="float32", name="prior"
            )
        elif bayesian:
            self.prior = PrecisionMLP(
                initial_log_precision=-log_variance,
                dtype=self.dtype_policy,
                name="prior",
            )

    def build(self, items_shape: tuple[int | None, ...]) -> None:
        states_shape = (*items_shape, self.embedding_dim)
        precision_shape = (*items_shape, 1) if self.bayesian else None
        self.item_embedding.build(items_shape)
        self.position_embedding.build(items_shape)
        for block in self.blocks:
            block.build(states_shape, precision_shape)
        self.final_norm.build(states_shape)
        if isinstance(self.prior, PrecisionEmbedding):
            self.prior.build(items_shape)
        elif self.prior is not None:
            self.prior.build(states_shape)
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
        log_precision = None
        if isinstance(self.prior, PrecisionEmbedding):
            log_precision = self.prior(items)
        elif self.prior is not None:
            log_precision = self.prior(embedded * self.input_scale)
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
