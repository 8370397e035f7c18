"""Recommenders made of filter layers: embeddings, prior, layers, final norm."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.layers import ItemEncoder
from keras_bft.layers import PrecisionEmbedding
from keras_bft.layers import StateNormalization
from keras_bft.models._incremental import Incremental
from keras_bft.models._item_prior import make_prior
from keras_bft.models._item_prior import prior_log_precision
from keras_bft.models.sequential_recommender import SequentialRecommender
from keras_bft.models.user_state import UserState
from keras_bft.typing import Tensor


class FilterRecommender(SequentialRecommender):
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
        self._incremental: Incremental | None = None

    def layer_seed(self, index: int) -> int | None:
        """Seed of a layer's dropout."""
        return None if self.seed is None else self.seed + 10 * (index + 1)

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
        counts = np.asarray(item_counts, "float64")
        num_ids = self.item_embedding.input_dim
        prior = self.prior
        if prior is None or getattr(prior, "input_dim", 0) != num_ids:
            raise ValueError(
                "Only a Bayesian model with `prior='item'` has a precision "
                f"for each item. Received: prior={self._arguments['prior']!r}, "
                f"bayesian={self.bayesian}"
            )
        if counts.shape != (self.num_items + 1,) or np.any(counts < 0):
            raise ValueError(
                "`item_counts` must hold a count, zero or more, for padding "
                f"and each of {self.num_items} items. Received: item_counts "
                f"of shape {counts.shape}, smallest {np.min(counts)}"
            )
        if counts[self.num_known_items + 1 :].any():
            raise ValueError(
                "`item_counts` must be zero for new items, those after "
                f"{self.num_known_items}. Received: "
                f"{counts[self.num_known_items + 1 :].sum()} interactions"
            )
        if not pseudo_count > 0 or not counts[1:].any():
            raise ValueError(
                "`pseudo_count` and some item's count must be above zero. "
                f"Received: pseudo_count={pseudo_count}, counts that sum to "
                f"{counts[1:].sum()}"
            )
        known = self.num_known_items + 1
        logs = np.log(counts[1:known] + pseudo_count)
        mean = np.average(logs, weights=counts[1:known])
        log_precision = np.full((num_ids, 1), -self.initial_log_variance)
        log_precision[1:known, 0] += logs - mean
        if isinstance(self.item_embedding, ItemEncoder):
            # That of new items, with which nobody has interacted.
            log_precision[0, 0] += np.log(pseudo_count) - mean
        prior.embeddings.assign(log_precision.astype("float32"))

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
        return self.final_norm(state)[0]

    def cache_inputs(
        self, position: Tensor, timestamps: Tensor | None
    ) -> dict[str, Tensor]:
        """What every layer is given besides when it reads a cache."""
        return {}

    def start(
        self,
        histories: Sequence[Sequence[int] | np.ndarray],
        timestamps: Sequence[Any] | None = None,
        restart_length: int | None = None,
        batch_size: int = 256,
    ) -> UserState:
        """Reads histories, and keeps what it takes to go on from there.

        Give the state to `append` with every new item, and to `recommend` or
        `score` in place of the histories. It keeps the keys and values of
        every layer, with their precisions: a new item then costs one position,
        which looks at those before, `O(T)`, and the results are those of the
        whole histories to 1e-5 in float32. For one user at a time that pays
        with windows of hundreds of items; with 50, what it takes to call a
        model is most of the time either way (`benchmarks/serving.py`).

        **Histories longer than `max_length`.** A model reads the newest
        `max_length` items and numbers them from the first of these, so every
        further item moves all positions and none of the keys stays what it
        was. With `restart_length=max_length`, the default, `append` then
        reads the whole window again, which is as exact and costs what a full
        recomputation costs. With a smaller one it reads the newest
        `restart_length` items and goes on from these until the window is full
        again: one full reading in `max_length - restart_length + 1` items, and
        the results are those of `score(state.windows)`, of histories that are
        cut off there, as a sliding window does at another place.

        Args:
            histories: One sequence of item ids per user, oldest first.
            timestamps: As in `score()`.
            restart_length: Number of newest items that are kept of a full
                window when another item comes. Defaults to `max_length`.
            batch_size: Largest number of histories read at once.

        Returns:
            A `keras_bft.models.UserState`.

        Raises:
            ValueError: As in `score()`, or if `restart_length` is not from 1
                to `max_length`.
            NotImplementedError: If the model is bidirectional (`BERT4Rec`).
        """
        if self._incremental is None:
            self._incremental = Incremental(self)
        return self._incremental.start(
            histories, timestamps, restart_length, batch_size
        )

    def append(
        self,
        state: UserState,
        items: Sequence[int] | np.ndarray,
        timestamps: Sequence[int] | np.ndarray | None = None,
        batch_size: int = 256,
    ) -> UserState:
        """Adds an item to each user of a state, see `start`.

        Compiled on JAX and TensorFlow, once for each power of two that users
        are padded to. As with `predict`, one thread at a time.

        Args:
            state: What `start` or `append` of this model returned. It is left
                as it was. `state[rows]` has some of its users.
            items: `(len(state),)` ids, the new item of each user.
            timestamps: `(len(state),)` integers, its time in seconds, for a
                model that reads them.
            batch_size: Largest number of users read at once.

        Returns:
            The state of the longer histories.

        Raises:
            ValueError: If `items` or `timestamps` do not fit the state or the
                model, or the state is of another model.
            NotImplementedError: As in `start`.
        """
        if self._incremental is None:
            self._incremental = Incremental(self)
        return self._incremental.append(state, items, timestamps, batch_size)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._arguments}
