"""What a decoder makes of every token of a text."""

from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._trace import listening
from keras_bft.models.llama._token_arrays import read_tokens
from keras_bft.models.llama._token_arrays import to_numpy
from keras_bft.ops import log_mean_precision


class TokenScores(NamedTuple):
    """Per-token scores.

    Attributes:
        log_likelihood: Natural log of the probability of each token given
            those before it, `(B, T)`, float32. NaN at padding and at the first
            token of a sequence, which nothing predicts.
        log_precision: Log of the mean precision over channels of the state
            after the last layer, `(B, T)`, or `None` unless Bayesian.
        gain: Mean Kalman gain over channels of each layer, `(B, layers, T)`,
            or `None` unless Bayesian.
    """

    log_likelihood: np.ndarray
    log_precision: np.ndarray | None
    gain: np.ndarray | None


def score_tokens(
    model: Any, token_ids: Any, padding_mask: Any, batch_size: int
) -> TokenScores:
    """Scores of a `BFTLlamaCausalLM`, computed without compiling.

    Args:
        model: The model.
        token_ids: `(B, T)`.
        padding_mask: `(B, T)`, the number of the example where several are
            packed in a row, or `None` for no padding.
        batch_size: Rows computed at a time.

    Returns:
        The scores.

    Raises:
        ValueError: If the shapes do not fit or an id is unknown.
    """
    check_positive("batch_size", batch_size)
    token_ids, mask = read_tokens(
        token_ids, padding_mask, model.backbone.vocabulary_size
    )
    parts = [
        _score_batch(model, token_ids[rows], mask[rows])
        for rows in (
            slice(start, start + batch_size)
            for start in range(0, len(token_ids), batch_size)
        )
    ]
    likelihood, log_precision, gain = zip(*parts, strict=True)
    if log_precision[0] is None:
        return TokenScores(np.concatenate(likelihood), None, None)
    return TokenScores(
        np.concatenate(likelihood),
        np.concatenate(log_precision),
        np.concatenate(gain),
    )


def _score_batch(model: Any, token_ids: np.ndarray, mask: np.ndarray) -> Any:
    ids = ops.convert_to_tensor(token_ids)
    with listening({"gain"}) as records:
        states, log_precision = model.backbone.encode(
            ids, ops.convert_to_tensor(mask)
        )
        logits = model.backbone.token_embedding(states[:, :-1], reverse=True)
    logits = ops.cast(logits, "float32")
    chosen = ops.take_along_axis(logits, ids[:, 1:, None], axis=-1)[..., 0]
    following = to_numpy(chosen - ops.logsumexp(logits, axis=-1))
    predicted = (mask[:, 1:] == mask[:, :-1]) & (mask[:, 1:] > 0)
    likelihood = np.full(token_ids.shape, np.nan, "float32")
    likelihood[:, 1:][predicted] = following[predicted]
    if log_precision is None:
        return likelihood, None, None
    gains = [heard["gain"] for _, heard in records]
    gain = np.stack(
        [to_numpy(ops.mean(gain, axis=-1)) for gain in gains], axis=1
    )
    return likelihood, to_numpy(log_mean_precision(log_precision)), gain
