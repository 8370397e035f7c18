"""Scores of items, and the best of them, after histories."""

from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import overload

import numpy as np

from keras_bft.models._history_reading import HistoryReading
from keras_bft.models._scoring import best_items
from keras_bft.models._scoring import host_array
from keras_bft.models._scoring import score_items
from keras_bft.models._top_k import check_k
from keras_bft.models.confidence import Confidence
from keras_bft.models.confidence import item_probabilities
from keras_bft.models.confidence import list_confidence
from keras_bft.models.confidence import variances_of
from keras_bft.models.user_state import UserState

PREDICTIVES = ("mean", "mean_field")


class HistoryScoring(HistoryReading):
    """The part of a recommender that answers."""

    def score(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
        predictive: str = "mean",
    ) -> np.ndarray:
        """Scores every item as the next one of each history.

        Args:
            histories: One sequence of item ids per user, oldest first. Of a
                long history the newest `max_length` items are read. Or what
                `start` or `append` of a causal model returned.
            batch_size: Largest number of histories encoded at once.
            timestamps: One sequence of times in seconds per user, for a
                model that reads them. A `UserState` has its own.
            predictive: `"mean"` (default), the inner product of the state and
                the item's vector, or `"mean_field"`, which divides it by
                `sqrt(1 + pi / 8 var)`, where `var` is its variance by the
                state's precision (MacKay 1992; the variance is derived for
                this library): the less is known of a user, the more alike the
                scores are. Item vectors count as known.

        Returns:
            Scores of shape `(len(histories), num_items + 1)`, float32. Column
            0, padding, is minus infinity.

        Raises:
            ValueError: If a history is empty or holds an unknown id,
                `timestamps` do not fit the histories or the model, or
                `predictive` is unknown or `"mean_field"` of a plain model.
        """
        precise = self._is_mean_field(predictive)
        _, states, log_precisions = self._read(
            histories, batch_size, timestamps, precise
        )
        return score_items(
            states, host_array(self.item_table()), variances_of(log_precisions)
        )

    def _is_mean_field(self, predictive: str) -> bool:
        """Whether scores read the precision.

        Raises:
            ValueError: If `predictive` is unknown, or there is no precision.
        """
        if predictive not in PREDICTIVES:
            raise ValueError(
                f"`predictive` must be one of {PREDICTIVES}. "
                f"Received: predictive={predictive!r}"
            )
        if predictive == "mean_field" and not self.has_precision:
            raise ValueError(
                "`predictive='mean_field'` reads the precision of the state, "
                "which models with `bayesian=True` have. "
                f"Received: predictive='mean_field' of a plain "
                f"{type(self).__name__}"
            )
        return predictive == "mean_field"

    @overload
    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
        predictive: str | None = None,
        return_confidence: Literal[False] = False,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
        predictive: str | None = None,
        *,
        return_confidence: Literal[True],
    ) -> tuple[np.ndarray, np.ndarray, Confidence]: ...

    def recommend(
        self,
        histories: Sequence[Sequence[int] | np.ndarray] | UserState,
        k: int,
        filter_seen: bool = True,
        batch_size: int = 256,
        timestamps: Sequence[Any] | None = None,
        predictive: str | None = None,
        return_confidence: bool = False,
    ) -> Any:
        """Recommends the `k` best items after each history.

        Works for any history, also of users that were not seen in training.
        The catalogue is scored a part at a time, so memory does not grow with
        `batch_size * num_items`.

        Args:
            histories: One sequence of item ids per user, oldest first, or what
                `start` or `append` of a causal model returned.
            k: Number of items to recommend.
            filter_seen: Whether to leave out the items of the history, all of
                it. Defaults to `True`.
            batch_size: Largest number of histories read and scored at once.
            timestamps: As in `score()`.
            predictive: The scores that items are ranked by and that the
                confidence is of, see `score()`. Defaults to `None`: ranked by
                `"mean"`, with the confidence of a Bayesian model from its
                precision, `"mean_field"`, and of a plain one `"mean"`.
            return_confidence: Whether to return how sure the model is.
                Defaults to `False`.

        Returns:
            Item ids, int64, and scores, float32, both `(len(histories), k)`,
            best first; equal scores in the order of the ids. Where fewer than
            `k` items are left, the rest is id 0 with minus infinity. With
            `return_confidence` also a `keras_bft.models.Confidence`: the
            probability of each item, that the list holds the next one, and the
            precision of the state.

        Raises:
            ValueError: If `k` is no integer from 1 to `num_items`, or as in
                `score()`.
        """
        check_k(k, self.num_items)
        by_precision = self._is_mean_field(
            "mean" if predictive is None else predictive
        )
        precise = by_precision or (return_confidence and self.has_precision)
        seen, states, log_precisions = self._read(
            histories, batch_size, timestamps, precise
        )
        variances = variances_of(log_precisions)
        table = host_array(self.item_table())
        ids = np.zeros((len(states), k), "int64")
        best = np.full((len(states), k), -np.inf, "float32")
        items = np.zeros((len(states), k))
        for start in range(0, len(states), batch_size):
            rows = slice(start, start + batch_size)
            left_out = seen[rows] if filter_seen else None
            own = None if variances is None else variances[rows]
            ids[rows], best[rows] = best_items(
                states[rows], table, k, left_out, own if by_precision else None
            )
            if return_confidence:
                items[rows] = item_probabilities(
                    ids[rows],
                    states[rows],
                    table,
                    left_out,
                    None if predictive == "mean" else own,
                )
        if return_confidence:
            return ids, best, list_confidence(items, log_precisions)
        return ids, best
