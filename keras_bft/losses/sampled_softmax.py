"""Cross-entropy with a partition function estimated from samples."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft.losses._negatives import check_num_negatives
from keras_bft.losses.accidental_hits import EXCLUDED
from keras_bft.losses.item_loss import ItemLoss
from keras_bft.losses.item_loss import target_scores
from keras_bft.typing import Tensor

# Log-uniform ids are drawn in two steps, see `draw_negatives()`.
_NUM_BLOCKS = 1024


@keras.saving.register_keras_serializable(package="keras_bft")
class SampledSoftmax(ItemLoss):
    """Softmax cross-entropy on sampled negatives shared by the whole batch.

    `n = num_negatives` ids are drawn with replacement from a proposal `q` over
    all items, the same ids for every position. With `s_i` the score of item
    `i` and `y` the target,

        Z    = exp(s_y) + sum_{draws j, j != y} exp(s_j) / (n q_j)
        loss = log Z - s_y

    `Z` is an unbiased estimate of the partition function of the full softmax:
    the negatives' scores are corrected by `-log(n q_j)`, the target, which is
    always present, is not corrected, and draws that equal the target are
    removed. The logarithm makes the loss itself slightly too small on average,
    less so with more negatives.

    This form is importance sampling, derived for this library. The usual logQ
    correction also subtracts the target's own log-probability, although the
    target is not sampled, and then `Z` is no estimate of the full sum.

    Args:
        num_negatives: Number of ids drawn for a batch, a positive integer.
            It may exceed the number of items. Defaults to `2000`.
        sampling: `"uniform"`, or `"log_uniform"`: `q_c = log((c + 1) / c) /
            log(num_items + 1)` for id `c`, close to Zipf's law, for catalogues
            whose ids are ordered by falling popularity, as the ids of
            `keras_bft.data.Interactions` are. Under any other order it only
            favours small ids. Defaults to `"uniform"`.
        correction: Whether to add `-log(n q_j)` to the negatives' scores.
            Without it the negatives compete as they are, which for uniform
            sampling understates the rest of the catalogue, and for log-uniform
            sampling also discounts popular items. Defaults to `True`.
        name: Name of the loss.

    Examples:

    >>> targets = np.array([[2, 3, 0]])  # 0 is padding and has no loss.
    >>> states, item_embeddings = np.ones((1, 3, 8)), np.zeros((100_001, 8))
    >>> loss = keras_bft.losses.SampledSoftmax(num_negatives=500)
    >>> estimate = float(
    ...     loss.from_states(
    ...         targets, states, item_embeddings, keras.random.SeedGenerator(1)
    ...     )
    ... )
    >>> bool(abs(estimate - np.log(100_000)) < 0.01)
    True

    `model.compile(loss=loss)` trains a model of `keras_bft.models` with it.
    """

    def __init__(
        self,
        num_negatives: int = 2000,
        sampling: str = "uniform",
        correction: bool = True,
        name: str = "sampled_softmax",
    ) -> None:
        super().__init__(name=name)
        if sampling not in ("uniform", "log_uniform"):
            raise ValueError(
                '`sampling` must be "uniform" or "log_uniform". '
                f"Received: sampling={sampling!r}"
            )
        if not isinstance(correction, bool):
            raise ValueError(
                "`correction` must be True or False. "
                f"Received: correction={correction!r}"
            )
        self.num_negatives = check_num_negatives(num_negatives)
        self.sampling = sampling
        self.correction = correction

    def draw_negatives(self, num_items: int, seed: Any = None) -> Tensor:
        """Draws the ids that a batch shares.

        Args:
            num_items: Number of items in the catalogue.
            seed: As in `from_states()`. The same int gives the ids that
                `from_states()` draws with it.

        Returns:
            int32 tensor `(num_negatives,)` of ids from 1 to `num_items`.
        """
        if self.sampling == "uniform":
            return keras.random.randint(
                (self.num_negatives,), 1, num_items + 1, "int32", seed
            )
        # The id is floor((num_items + 1) ** u). One float32 `u` cannot reach
        # every id of a large catalogue, so it is split into the block that `u`
        # falls into, with exact edges from NumPy, and the place in the block.
        width = math.log(num_items + 1) / _NUM_BLOCKS
        edges = np.exp(width * np.arange(_NUM_BLOCKS))
        whole = np.floor(edges).astype("int32")
        uniform = keras.random.uniform(
            (2, self.num_negatives), dtype="float32", seed=seed
        )
        block = ops.cast(uniform[0] * _NUM_BLOCKS, "int32")
        offset = ops.take((edges - whole).astype("float32"), block) + ops.take(
            edges.astype("float32"), block
        ) * ops.expm1(width * uniform[1])
        ids = ops.take(whole, block) + ops.cast(ops.floor(offset), "int32")
        return ops.minimum(ids, num_items)

    def position_losses(
        self,
        targets: Tensor,
        states: Tensor,
        item_embeddings: Tensor,
        seed: Any = None,
    ) -> Tensor:
        """Returns the sampled cross-entropy of each position."""
        num_items = item_embeddings.shape[0] - 1
        negatives = self.draw_negatives(num_items, seed)
        logits = ops.matmul(
            states, ops.transpose(ops.take(item_embeddings, negatives, axis=0))
        )
        if self.correction:
            logits = logits - self._log_expected_count(negatives, num_items)
        is_target = ops.equal(
            ops.expand_dims(targets, 1), ops.expand_dims(negatives, 0)
        )
        logits = ops.where(is_target, EXCLUDED, logits)
        return ops.softplus(
            ops.logsumexp(logits, axis=-1)
            - target_scores(targets, states, item_embeddings)
        )

    def _log_expected_count(self, ids: Tensor, num_items: int) -> Tensor:
        """Returns `log(n q)` of the ids."""
        if self.sampling == "uniform":
            return math.log(self.num_negatives / num_items)
        return ops.log(ops.log1p(1.0 / ops.cast(ids, "float32"))) + math.log(
            self.num_negatives / math.log(num_items + 1)
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the loss."""
        config = super().get_config()
        config.update(
            {
                "num_negatives": self.num_negatives,
                "sampling": self.sampling,
                "correction": self.correction,
            }
        )
        return config
