"""Recommenders made of filter layers: embeddings, prior, layers, final norm."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers import ItemEncoder
from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import StateNormalization
from keras_bft.layers._seeds import part_seed
from keras_bft.models._item_prior import initialize_from_counts
from keras_bft.models._item_prior import make_prior
from keras_bft.models._item_prior import prior_log_precision
from keras_bft.models._precise_encoder import PreciseEncoder
from keras_bft.models._user_states import UserStates
from keras_bft.ops import normalized_log_precision
from keras_bft.typing import Tensor


class FilterRecommender(UserStates):
    """Base of the models whose layers carry a precision beside the state.

    A subclass sets `self.blocks`, layers that take and return a state and its
    log-precision, and lists its further arguments in `self._arguments`. See
    `SASRec` for the arguments.
    """

    def __init__(
        self,
        num_items: int,
        max_length: int,
        embedding_dim: int,
        dropout: float,
        bayesian: bool,
        prior: str,
        carry_units: bool,
        scale_embeddings: bool,
        seed: int | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_items, max_length, embedding_dim, seed, **kwargs)
        self._arguments: dict[str, Any] = {
            "dropout": dropout,
            "bayesian": bayesian,
            "prior": prior,
            "carry_units": carry_units,
            "scale_embeddings": scale_embeddings,
        }
        self.bayesian = bayesian
        self.input_scale = embedding_dim**0.5 if scale_embeddings else 1.0
        # Of the states that enter the first layer, where units are carried.
        self.initial_log_variance = 0.0
        if carry_units:
            stddev = self.input_scale * self.embedding_stddev
            self.initial_log_variance = 2.0 * math.log(stddev)
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
        self.final_norm = StateNormalization(
            dtype=self.dtype_policy, name="final_norm"
        )
        self.prior = None
        if bayesian:
            self.prior = make_prior(
                prior,
                self.item_embedding.input_dim,
                -self.initial_log_variance,
                self.dtype_policy,
            )
        self.blocks: list[keras.layers.Layer] = []
        self._precise_predict: Callable[..., Any] | None = None

    def layer_seed(self, index: int) -> int | None:
        """Seed of a layer's dropout."""
        return part_seed(self.seed, 10 * (index + 1))

    def layer_options(
        self, options: dict[str, Any], is_last: bool
    ) -> dict[str, Any]:
        """Options of a layer. The last one adds no process noise.

        The scores do not read its precision, so nothing would learn the
        noise; and a noise that nobody learned would hide the differences
        between users from `recommend(return_confidence=True)`.
        """
        if is_last:
            return options | {"initial_log_process_noise": None}
        return options

    def build(self, items_shape: Any) -> None:
        if isinstance(items_shape[0], (tuple, list)):
            items_shape = items_shape[0]
        states_shape = (*items_shape, self.embedding_dim)
        precision_shape = (*items_shape, 1) if self.bayesian else None
        self.item_embedding.build(items_shape)
        self.position_embedding.build(items_shape)
        times = [items_shape] if self.reads_timestamps else []
        for block in self.blocks:
            block.build(states_shape, precision_shape, *times)
        self.final_norm.build(states_shape)
        if self.prior is not None:
            reads_ids = isinstance(self.prior, PrecisionEmbedding)
            self.prior.build(items_shape if reads_ids else states_shape)
        self.built = True

    def initialize_prior(
        self, item_counts: Any, pseudo_count: float = 1.0
    ) -> None:
        """Starts each item's prior precision at what its count supports.

        An embedding learned from `n` interactions is about as uncertain as a
        mean of `n` values, so its precision grows as `n` (derived for this
        library):

        ```
        log tau_i = log tau_0 + log(n_i + m) - mean log(n + m)
        ```

        with the mean over all interactions, so that the items of a history
        start at `tau_0` on average. Of a model with `item_features` all items
        that come without an id, new ones and those whose ids training drops,
        share one, which starts at that of `n_i = 0`. Call it before training;
        the precisions are learned on from there.

        Args:
            item_counts: Training count of each item, `(num_items + 1,)` with
                an entry for padding first, as
                `LeaveOneOut.train_item_counts` gives it.
            pseudo_count: `m > 0`, the interactions that an item has before
                any. Defaults to `1.0`.

        Raises:
            ValueError: If the model has no prior per item, or an argument is
                outside its domain.
        """
        initialize_from_counts(self, item_counts, pseudo_count)

    def embed(
        self, items: Tensor, position: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """What enters the first layer.

        Args:
            items: `(B, T)` int.
            position: `(B, T)` int, from 0 to `max_length - 1`.
            training: Whether to use dropout.

        Returns:
            States `(B, T, D)` and their prior log-precision, `(B, T, 1)`;
            `None` for a plain model.
        """
        id_rows = items
        if isinstance(self.item_embedding, ItemEncoder):
            id_rows = self.item_embedding.id_rows(items, training)
            embedded = self.item_embedding(items, id_rows)
        else:
            embedded = self.item_embedding(items)
        state = embedded + self.position_embedding(position)
        state = state * self.input_scale
        state = self.embedding_dropout(state, training=training)
        return state, prior_log_precision(
            self.prior, id_rows, embedded * self.input_scale
        )

    def encode(
        self, items: Tensor, training: bool = False, **block_inputs: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """States after the last layer, and their log-precision.

        Args:
            items: `(B, T)` int, 0 is padding.
            training: Whether to use dropout.
            **block_inputs: What every layer is given besides, such as
                `attention_mask`, `(B, T, T)` bool, `True` where a position
                (axis 1) may see another, on top of padding and causality.

        Returns:
            States `(B, T, D)` before the final norm and log-precision
            `(B, T, D)` or `(B, T, 1)`, float32; `None` for a plain model.

        Raises:
            ValueError: If `T` is greater than `max_length`.
        """
        items = ops.convert_to_tensor(items)
        length = items.shape[1]
        # An export leaves the length open: it is then no int.
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"`items` is longer than `max_length`={self.max_length}. Keep "
                "the newest items of each history. "
                f"Received: items of shape {tuple(items.shape)}"
            )
        real = ops.not_equal(items, 0)
        position = ops.cumsum(ops.cast(real, "int32"), axis=1) - 1
        position = ops.maximum(position, 0)
        state, log_precision = self.embed(items, position, training)
        for block in self.blocks:
            output = block(
                state,
                log_precision,
                padding_mask=real,
                training=training,
                **block_inputs,
            )
            state, log_precision = output if self.bayesian else (output, None)
        return state, log_precision

    def call(
        self,
        items: Tensor,
        training: bool = False,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        state, _ = self.encode(
            items, training=training, attention_mask=attention_mask
        )
        return self.read_out(state)[0]

    def read_out(
        self, state: Tensor, log_precision: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """States as the scores read them, from those after the last layer.

        The precision goes with them by the delta method, with the spread that
        the final norm divides by held fixed (derived for this library):

        ```
        v_d = gamma_d^2 / (lambda_d spread^2)
        ```

        Args:
            state: `(B, T, D)`, what `encode` returns.
            log_precision: Its log-precision, `(B, T, D)` or `(B, T, 1)`, or
                `None`, if that of the result is not wanted.

        Returns:
            States `(B, T, D)`, and minus the log of `v`, `(B, T, D)` float32,
            or `None`.
        """
        normalized, spread = self.final_norm(state)
        if log_precision is None:
            return normalized, None
        shape = ops.shape(normalized)
        return normalized, normalized_log_precision(
            ops.broadcast_to(log_precision, shape),
            spread,
            self.final_norm.gamma,
        )

    @property
    def has_precision(self) -> bool:
        """Whether states have a precision, as those of a Bayesian model do."""
        return self.bayesian

    def predict_precisely(
        self, inputs: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """States that score and their log-precision, see `PreciseEncoder`."""
        if self._precise_predict is None:
            # Keras would take a model that is an attribute for a part of it.
            self._precise_predict = PreciseEncoder(self).predict_on_batch
        return self._precise_predict(inputs)

    def cache_inputs(
        self, position: Tensor, timestamps: Tensor | None
    ) -> dict[str, Tensor]:
        """What every layer is given besides when it reads a cache."""
        return {}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._arguments}
