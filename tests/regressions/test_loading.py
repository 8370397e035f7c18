"""Files of weights and models that had not been called."""

import numpy as np
import pytest

from keras_bft.models import HSTU
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import SIZES


@pytest.mark.parametrize("model_class", [SASRec, HSTU])
def test_weights_find_every_layer_of_a_model_that_was_only_built(
    model_class, tmp_path
):
    path = tmp_path / "model.weights.h5"
    model = model_class(**SIZES)
    model.build((None, 6))
    randomize(model)
    model.save_weights(path)
    again = model_class(**SIZES)
    with pytest.raises(ValueError, match="not yet been built"):
        again.load_weights(path)
    again.build((None, 6))
    again.load_weights(path)
    # Nothing comes into being at the first call.
    before = [weight.path for weight in again.weights]
    assert again.count_params() == model.count_params() > 0
    np.testing.assert_array_equal(numpy(again(ITEMS)), numpy(model(ITEMS)))
    assert [weight.path for weight in again.weights] == before
