"""Random numbers: new at each step, for each layer its own, repeatable."""

import keras
import numpy as np
import pytest

from keras_bft.models import HSTU
from keras_bft.models import BERT4Rec
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy
from tests.models.small_sasrec import ITEMS
from tests.models.small_sasrec import SIZES
from tests.models.small_sasrec import built


@pytest.mark.parametrize("model_class", [SASRec, BERT4Rec, HSTU])
@pytest.mark.parametrize("seed", [3, None])
def test_no_two_streams_of_a_model_begin_alike(model_class, seed):
    features = {"dense": np.ones((SIZES["num_items"] + 1, 1))}
    options = {"num_layers": 2, "dropout": 0.5, "item_features": features}
    model = model_class(seed=seed, **options, **SIZES)
    states = [
        tuple(numpy(variable.value))
        for variable in model.variables
        if variable.path.endswith("seed_generator_state")
    ]
    # Negatives, ids of items, the embeddings, and in each layer at least one.
    assert len(states) >= 5
    assert len(set(states)) == len(states)


def test_compiled_steps_drop_anew_and_the_same_when_repeated():
    def losses(seed):
        keras.utils.set_random_seed(0)
        model = built(num_layers=1, dropout=0.5, bayesian=False, seed=seed)
        # Nothing is learned, so only dropout tells the steps apart.
        model.compile(keras.optimizers.SGD(0.0))
        targets = np.roll(ITEMS, -1, 1)
        fit = model.fit(ITEMS, targets, epochs=3, shuffle=False, verbose=0)
        return fit.history["loss"]

    first = losses(3)
    assert losses(3) == first
    assert len(set(first) | set(losses(None))) == 6
