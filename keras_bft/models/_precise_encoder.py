"""States that score the next item, with their precision."""

from typing import Any

import keras
from keras import ops

from keras_bft.models._cached_encoder import storable
from keras_bft.typing import Tensor


class PreciseEncoder(keras.Model):
    """Reads histories to the state that scores, and to its precision.

    A model of its own for Keras to compile: `call()` of a recommender gives
    states alone. It has no weights besides those of the recommender.

    Args:
        recommender: A built `FilterRecommender` with a precision.

    Call arguments:
        inputs: Dict of `"items"`, `(B, T)` int, 0 is padding; `"last"`, `(B,)`
            int, the position whose state scores; and `"timestamps"`, `(B, T)`
            int, if the recommender reads them.

    Returns:
        The state that scores and the log-precision of its channels, both
        `(B, D)`.
    """

    def __init__(self, recommender: Any) -> None:
        super().__init__(autocast=False, name="precise_encoder")
        self.recommender = recommender
        self.built = True

    def call(self, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        inputs = dict(inputs)
        last = inputs.pop("last")[:, None, None]
        state, log_precision = (
            ops.take_along_axis(x, last, axis=1)
            for x in self.recommender.encode(**inputs)
        )
        state, log_precision = self.recommender.read_out(state, log_precision)
        return storable(state[:, 0]), log_precision[:, 0]
