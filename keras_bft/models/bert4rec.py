"""BERT4Rec, plain or as a Bayesian filter."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.data import MaskedItemDataset
from keras_bft.data import SequenceDataset
from keras_bft.models.transformer_recommender import TransformerRecommender
from keras_bft.ops import activation_derivative
from keras_bft.ops import project_log_precision
from keras_bft.ops.precision import float32
from keras_bft.typing import Tensor

# Keeps the precision finite where the activation is flat.
_FLAT = 1.0e-12


@keras.saving.register_keras_serializable(package="keras_bft")
class BERT4Rec(TransformerRecommender):
    """Bidirectional recommender that learns from masked items.

    The model of Sun et al. (2019). Every position sees all others. Training
    masks items and guesses them from both sides, see
    `keras_bft.data.MaskedItemDataset`; a recommendation appends the mask to
    the history and reads its state. With `bayesian=True` the layers filter as
    in `SASRec`, and the mask, whose embedding says nothing of the item behind
    it, has a learned prior precision of its own.

    The head is that of the original, a dense layer with GELU before the tied
    item table; the original's bias for each item is left out.

    Args:
        num_items: Size of the catalogue. Items are 1 to `num_items`, 0 pads,
            and `mask_id`, `num_items + 1`, is the mask.
        max_length: Number of newest items read, in recommendations one less
            and the mask. At least 2. Defaults to `50`.
        **kwargs: The other arguments of `SASRec`, with the same defaults. The
            original has `normalize_first=False` (post-norm).

    Call arguments:
        items: `(B, T)` int, `T <= max_length`, masked items as `mask_id`.

    Returns:
        States `(B, T, D)`. `score()` and `recommend()` give item scores.

    Raises:
        ValueError: If an argument is outside its domain, or `fit()` is given
            a `SequenceDataset` without masks.

    Example:

    >>> model = keras_bft.models.BERT4Rec(num_items=20, max_length=8)
    >>> model.compile("adam", loss=keras_bft.losses.FullSoftmax())
    >>> data = keras_bft.data.MaskedItemDataset(
    ...     [[3, 5, 7, 9], [2, 4, 6, 8, 10]], mask_id=model.mask_id)
    >>> history = model.fit(data, verbose=0)
    >>> ids, scores = model.recommend([[3, 5, 7], [2]], k=4)
    >>> ids.shape
    (2, 4)
    """

    causal = False
    num_special_ids = 1

    def __init__(
        self, num_items: int, max_length: int = 50, **kwargs: Any
    ) -> None:
        super().__init__(num_items, max_length, **kwargs)
        if max_length < 2:
            raise ValueError(
                "`max_length` must leave room for an item and the mask. "
                f"Received: max_length={max_length}"
            )
        self.head = keras.layers.Dense(
            self.embedding_dim,
            activation="gelu",
            dtype=self.dtype_policy,
            name="head",
        )

    @property
    def mask_id(self) -> int:
        """Id of the mask."""
        return self.num_items + 1

    def build(self, items_shape: tuple[int | None, ...]) -> None:
        super().build(items_shape)
        self.head.build((*items_shape, self.embedding_dim))

    def read_out(
        self, state: Tensor, log_precision: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        state, log_precision = super().read_out(state, log_precision)
        if log_precision is None:
            return self.head(state), None
        # The delta method through the kernel, as of a layer's output, and the
        # activation (derived for this library).
        kernel = self.head.kernel[None]
        log_precision = project_log_precision(log_precision[:, :, None], kernel)
        before = ops.matmul(float32(state), float32(self.head.kernel))
        before = before + float32(self.head.bias)
        slope = activation_derivative(self.head.activation)(before)
        log_slope = ops.log(ops.square(slope) + _FLAT)
        return self.head(state), log_precision - log_slope

    def encode_last(self, items: Tensor, *times: Tensor) -> tuple[Any, Any]:
        mask = ops.full_like(items[:, :1], self.mask_id)
        return super().encode_last(ops.concatenate([items, mask], axis=1))

    def _check_data(self, x: Any, y: Any = None) -> None:
        super()._check_data(x, y)
        if not isinstance(x, SequenceDataset):
            return
        if not isinstance(x, MaskedItemDataset) or x.mask_id != self.mask_id:
            raise ValueError(
                "BERT4Rec sees the items that a `SequenceDataset` asks for. "
                "Use `keras_bft.data.MaskedItemDataset` with "
                f"mask_id={self.mask_id}. Received: a {type(x).__name__} with "
                f"mask_id={getattr(x, 'mask_id', None)}"
            )

    def _input_ids(self, history: np.ndarray) -> np.ndarray:
        newest = history[-(self.max_length - 1) :]
        return np.append(newest, self.mask_id)
