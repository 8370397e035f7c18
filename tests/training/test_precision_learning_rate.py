import keras
import numpy as np
import pytest

from keras_bft.losses import FullSoftmax
from keras_bft.models import SASRec
from keras_bft.training import ScaledSchedule
from keras_bft.training import precision_variables
from keras_bft.training import with_precision_learning_rate
from tests.layers.layer_checks import numpy

IDS = np.random.default_rng(0).integers(1, 12, (6, 5))


def make_model(**options):
    keras.utils.set_random_seed(0)
    model = SASRec(
        11, max_length=5, embedding_dim=8, dropout=0.0, name="model", **options
    )
    model(IDS[:, :4])
    return model


def steps(model, optimizer, count):
    """How far each variable goes, by its path."""
    before = {v.path: numpy(v.value) for v in model.trainable_variables}
    model.compile(optimizer, loss=FullSoftmax())
    model.fit(IDS[:, :-1], IDS[:, 1:], batch_size=6, epochs=count, verbose=0)
    return {
        v.path: numpy(v.value) - before[v.path]
        for v in model.trainable_variables
    }


def test_only_the_precisions_move_faster():
    model = make_model(trainable_strength=True)
    fast = {v.path for v in precision_variables(model)}
    assert {path.split("/")[-1] for path in fast} == {
        "log_precision",
        "log_process_noise",
        "strength",
    }
    want = steps(model, keras.optimizers.SGD(1e-2), 1)
    model = make_model(trainable_strength=True)
    got = steps(
        model,
        with_precision_learning_rate(keras.optimizers.SGD(1e-2), model, 50.0),
        1,
    )
    assert got.keys() == want.keys() and len(fast) < len(want)
    for path, step in want.items():
        factor = 50.0 if path in fast else 1.0
        np.testing.assert_allclose(got[path], factor * step, atol=2e-5)
    assert all(np.abs(got[path]).max() > 1e-3 for path in fast)


def test_schedules_and_saving(tmp_path):
    model = make_model()
    decay = keras.optimizers.schedules.CosineDecay(
        0.0, 20, warmup_target=0.02, warmup_steps=5
    )
    optimizer = with_precision_learning_rate(
        keras.optimizers.Adam(decay, global_clipnorm=1.0), model, 3.0
    )
    steps(model, optimizer, 4)
    slow, fast = sorted(
        (part.learning_rate for part in optimizer.optimizers), key=float
    )
    assert float(slow) == pytest.approx(0.02 * 4 / 5, rel=1e-5)
    assert float(fast) == pytest.approx(3.0 * float(slow), rel=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for part, copy in zip(
        optimizer.optimizers, again.optimizer.optimizers, strict=True
    ):
        assert copy.global_clipnorm == 1.0
        assert float(copy.learning_rate) == pytest.approx(
            float(part.learning_rate)
        )
        for variable, value in zip(copy.variables, part.variables, strict=True):
            np.testing.assert_array_equal(
                numpy(variable.value), numpy(value.value)
            )
    scaled = ScaledSchedule(decay, 3.0)
    copy = ScaledSchedule.from_config(scaled.get_config())
    assert float(copy(7)) == float(scaled(7)) > 0.05


def test_bad_arguments():
    model = make_model(bayesian=False)
    with pytest.raises(ValueError, match="must be built and learn precisions"):
        with_precision_learning_rate(keras.optimizers.Adam(), model, 2.0)
    model = make_model()
    with pytest.raises(ValueError, match="multiplier=0"):
        with_precision_learning_rate(keras.optimizers.Adam(), model, 0)
    used = keras.optimizers.Adam()
    used.build(model.trainable_variables)
    with pytest.raises(ValueError, match="must be new"):
        with_precision_learning_rate(used, model, 2.0)
