import keras
import numpy as np
import pytest

from keras_bft.losses import SparseCategoricalFocalCrossentropy
from tests.gradients import value_and_gradients

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0.0, 3.0, (4, 5, 7)).astype("float32")
LABELS = RNG.integers(0, 7, (4, 5))


def reference(gamma):
    z = LOGITS.astype("float64")
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    p = np.take_along_axis(p, LABELS[..., None], -1)[..., 0]
    return -((1 - p) ** gamma) * np.log(p)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_values_from_logits_and_probabilities(gamma):
    want = reference(gamma)
    loss = SparseCategoricalFocalCrossentropy(gamma, True, reduction=None)
    got = keras.ops.convert_to_numpy(loss(LABELS, LOGITS))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-6)
    probabilities = keras.ops.softmax(LOGITS)
    loss = SparseCategoricalFocalCrossentropy(gamma, reduction=None)
    got = keras.ops.convert_to_numpy(loss(LABELS, probabilities))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6)


def test_that_of_keras_for_one_hot_labels():
    keras_loss = keras.losses.CategoricalFocalCrossentropy(
        alpha=1.0, from_logits=True
    )
    want = keras_loss(np.eye(7, dtype="float32")[LABELS], LOGITS)
    got = SparseCategoricalFocalCrossentropy(from_logits=True)(LABELS, LOGITS)
    assert float(got) == pytest.approx(float(want), rel=1e-5)


def test_weights_and_config():
    weight = (RNG.random((4, 5)) < 0.5).astype("float32")
    loss = SparseCategoricalFocalCrossentropy(
        1.5, True, reduction="mean_with_sample_weight"
    )
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    got = float(copy(LABELS, LOGITS, sample_weight=weight))
    assert got == pytest.approx((reference(1.5) * weight).sum() / weight.sum())


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_gradients_are_finite_where_the_label_is_sure(gamma):
    logits = np.array([[200.0, 0.0], [0.0, 200.0]], "float32")
    loss = SparseCategoricalFocalCrossentropy(gamma, from_logits=True)
    labels = np.array([0, 0])
    _, [gradient] = value_and_gradients(lambda x: loss(labels, x), logits)
    assert np.isfinite(gradient).all() and gradient[0].tolist() == [0.0, 0.0]
    # Wrong and sure: as the cross-entropy, over two examples.
    np.testing.assert_allclose(gradient[1], [-0.5, 0.5], rtol=1e-5)


def test_bad_gamma():
    with pytest.raises(ValueError, match="gamma=-1"):
        SparseCategoricalFocalCrossentropy(-1)
