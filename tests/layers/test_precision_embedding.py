import keras
import numpy as np
import pytest

from keras_bft.layers import PrecisionEmbedding
from tests.layers.layer_checks import MaskProbe
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_config
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.layers.layer_checks import variable_gradients

IDS = np.array([[1, 4, 0], [2, 2, 3]], "int32")


def test_config():
    check_config(
        PrecisionEmbedding,
        input_dim=7,
        initial_log_precision=1.5,
        mask_zero=True,
        embeddings_regularizer="l2",
    )


def test_saving(tmp_path):
    check_saving(lambda: PrecisionEmbedding(5, mask_zero=True), [IDS], tmp_path)


def test_output_spec_is_float32_under_every_policy():
    check_output_spec(lambda: PrecisionEmbedding(5), [IDS], state_outputs=0)


def test_compiled():
    check_compiled(lambda: PrecisionEmbedding(5), [IDS])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_looks_up_one_number_an_id(policy):
    layer = PrecisionEmbedding(5, dtype=policy)
    layer.build(IDS.shape)
    randomize(layer)
    table = numpy(layer.embeddings)
    assert table.shape == (5, 1)
    np.testing.assert_array_equal(numpy(layer(IDS)), table[IDS])
    np.testing.assert_array_equal(
        numpy(layer(IDS.astype("float32"))), table[IDS]
    )


def test_starts_where_it_is_told():
    layer = PrecisionEmbedding(5, initial_log_precision=2.25)
    np.testing.assert_array_equal(numpy(layer(IDS)), np.full((2, 3, 1), 2.25))


def test_gradient_of_an_id_counts_its_uses():
    layer = PrecisionEmbedding(5)
    layer.build(IDS.shape)
    _, (gradient,) = variable_gradients(
        lambda: keras.ops.sum(layer(IDS)), layer.trainable_variables
    )
    np.testing.assert_array_equal(gradient[:, 0], [1, 1, 2, 1, 1])


def test_mask_zero_gives_the_output_a_mask():
    ids = keras.Input((3,), dtype="int32")
    mask = MaskProbe()(PrecisionEmbedding(5, mask_zero=True)(ids))
    np.testing.assert_array_equal(
        numpy(keras.Model(ids, mask)(IDS)), (IDS != 0).astype(int)
    )
    with pytest.raises(ValueError, match="No mask"):
        MaskProbe()(PrecisionEmbedding(5)(IDS))


def test_regularizer_adds_a_loss():
    layer = PrecisionEmbedding(
        4, initial_log_precision=3.0, embeddings_regularizer="l2"
    )
    layer(IDS % 4)
    assert numpy(layer.losses[0]) == pytest.approx(0.01 * 4 * 9.0)


@pytest.mark.parametrize("input_dim", [0, -1, 2.0, True])
def test_wrong_input_dim_raises(input_dim):
    with pytest.raises(ValueError, match="Received: input_dim="):
        PrecisionEmbedding(input_dim)
