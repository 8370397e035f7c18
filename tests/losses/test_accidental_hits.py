import keras
import numpy as np
import pytest

from keras_bft.losses import remove_accidental_hits
from tests.gradients import gradient_function

IDS = np.array([4, 7, 4, 0, 7], "int32")
# Rows whose positives are the candidates 0, 1, 2 and 4.
LABELS = np.eye(5, dtype="float32")[[0, 1, 2, 4]]
LOGITS = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
REMOVED = np.array(
    [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1], [1, 0, 0, 1, 0], [0, 1, 0, 1, 0]], bool
)


def test_the_positive_alone_keeps_its_id():
    logits = remove_accidental_hits(LOGITS, LABELS, IDS)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(logits), np.where(REMOVED, -1e30, LOGITS)
    )


def test_rows_may_have_candidates_of_their_own():
    order = np.array([np.roll(np.arange(5), row) for row in range(4)])
    logits, labels, shifted, removed = (
        np.take_along_axis(x, order, axis=1)
        for x in (LOGITS, LABELS, np.tile(IDS, (4, 1)), REMOVED)
    )
    kept = remove_accidental_hits(logits, labels, shifted)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(kept), np.where(removed, -1e30, logits)
    )


def test_there_may_be_more_axes():
    logits = remove_accidental_hits(LOGITS, LABELS, IDS)
    more = remove_accidental_hits(LOGITS[None], LABELS[None], IDS)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(more)[0], keras.ops.convert_to_numpy(logits)
    )


def test_the_positive_may_be_padding_and_the_loss_stays_finite():
    ids, labels = np.zeros(3, "int32"), np.eye(3)

    def loss(logits):
        kept = remove_accidental_hits(logits, labels, ids)
        return keras.ops.sum(
            keras.ops.categorical_crossentropy(labels, kept, from_logits=True)
        )

    logits = np.arange(9, dtype="float32").reshape(3, 3)
    value, gradient = gradient_function(loss)(logits)
    assert float(value) == 0.0
    assert not np.asarray(gradient).any()


def test_half_precision_does_not_overflow():
    logits = remove_accidental_hits(LOGITS.astype("float16"), LABELS, IDS)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.all(np.isfinite(keras.ops.convert_to_numpy(logits)))


@pytest.mark.parametrize(
    "labels, ids", [(LABELS[:3], IDS), (LABELS, IDS[:4]), (LABELS, IDS[None])]
)
def test_shapes_that_do_not_fit_raise(labels, ids):
    with pytest.raises(ValueError, match="Received: logits of shape"):
        remove_accidental_hits(LOGITS, labels, ids)
