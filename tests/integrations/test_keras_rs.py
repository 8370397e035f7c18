"""Layers of keras-rs beside this library's, on every backend."""

import keras
import numpy as np
import pytest

from keras_bft.losses import remove_accidental_hits
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

keras_rs = pytest.importorskip("keras_rs")

NUM_ITEMS, DIM = 9, 8
INPUTS = np.array([[1, 2, 3, 0], [4, 5, 6, 7]], "int32")
TARGETS = np.array([[2, 3, 4, 0], [5, 6, 7, 9]], "int32")


def distributed(rows=NUM_ITEMS + 1, names=("item",), nested=True):
    table = keras_rs.layers.TableConfig(
        name="items",
        vocabulary_size=rows,
        embedding_dim=DIM,
        initializer=keras.initializers.RandomNormal(stddev=DIM**-0.5),
    )
    configs = {
        name: keras_rs.layers.FeatureConfig(
            name=name,
            table=table,
            input_shape=(None, 1),
            output_shape=(None, DIM),
        )
        for name in names
    }
    return keras_rs.layers.DistributedEmbedding(
        configs if nested else configs[names[0]]
    )


def built(**options):
    model = SASRec(
        NUM_ITEMS,
        max_length=4,
        embedding_dim=DIM,
        num_layers=1,
        seed=0,
        dropout=0.0,
        **options,
    )
    model.build((None, 4))
    return model


def table_of(layer):
    return layer.get_embedding_tables()["items"]


def test_a_distributed_embedding_trains_as_an_embedding(tmp_path):
    layer = distributed()
    models = [built(), built(item_embedding=layer)]
    randomize(models[0])
    models[1].set_weights(models[0].get_weights())
    histories, losses = [[1, 2, 3], [4]], []
    for model in models:
        model.compile(keras.optimizers.Adam(0.01))
        fit = model.fit(INPUTS, TARGETS, epochs=2, verbose=0)
        losses.append(fit.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    # Its table is what the model's optimizer has trained, and is tied.
    np.testing.assert_allclose(
        numpy(table_of(layer)),
        numpy(models[0].item_embedding.embeddings),
        atol=1e-5,
    )
    plain, model = models
    np.testing.assert_allclose(
        model.score(histories)[:, 1:], plain.score(histories)[:, 1:], atol=1e-4
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.score(histories)[:, 1:], model.score(histories)[:, 1:], atol=1e-6
    )
    again = loaded.item_embedding.layer
    assert type(again) is keras_rs.layers.DistributedEmbedding
    assert again.get_config()["tables"] == layer.get_config()["tables"]


def test_it_may_have_no_name_and_be_the_ids_of_items_with_features():
    model = built(
        item_embedding=distributed(rows=NUM_ITEMS, nested=False),
        item_features={
            "dense": np.ones((NUM_ITEMS + 1, 1)),
            "num_new_items": 1,
        },
    )
    kernel = np.arange(DIM, dtype="float32")[None]
    model.item_embedding.dense_kernel.assign(kernel)
    table = numpy(model.item_table())
    ids = numpy(table_of(model.item_embedding.id_embedding.layer))
    np.testing.assert_allclose(table[1:-1], ids[1:] + kernel, atol=1e-6)
    np.testing.assert_allclose(table[-1:], kernel, atol=1e-6)
    np.testing.assert_allclose(
        numpy(model.item_embedding(INPUTS[1])), table[INPUTS[1]], atol=1e-6
    )
    again = SASRec.from_config(model.get_config())
    assert again.get_config() == model.get_config()


def test_tables_that_do_not_fit_raise():
    with pytest.raises(ValueError, match=r"Received: \(5, 8\)"):
        built(item_embedding=distributed(rows=5))
    with pytest.raises(ValueError, match=r"Received: .*\['item', 'other'\]"):
        built(item_embedding=distributed(names=("item", "other")))


def test_remove_accidental_hits_of_keras_rs_still_does_nothing():
    """Fails once keras-rs removes them, and the docs can say so."""
    logits = keras.ops.convert_to_tensor([[1.0, 2.0, 3.0]])
    labels = keras.ops.convert_to_tensor([[1.0, 0.0, 0.0]])
    ids = keras.ops.convert_to_tensor([5, 5, 6])
    kept = keras_rs.layers.RemoveAccidentalHits()(logits, labels, ids)
    assert numpy(kept).tolist() == [[1.0, 2.0, 3.0]]
    ours = numpy(remove_accidental_hits(logits, labels, ids))
    np.testing.assert_allclose(ours, [[1.0, -1e30, 3.0]])


def test_hard_negatives_after_correction_and_removal():
    rng = np.random.default_rng(0)
    ids = np.array([1, 2, 1, 3, 0], "int32")
    probability = np.array([1.0, 0.4, 0.2, 0.1])[ids].astype("float32")
    logits = rng.normal(size=(5, 5)).astype("float32")
    labels = np.eye(5, dtype="float32")
    corrected = keras_rs.layers.SamplingProbabilityCorrection()(
        logits, probability
    )
    kept = remove_accidental_hits(corrected, labels, ids)
    mined, one_hot = keras_rs.layers.HardNegativeMining(2)(
        kept, keras.ops.convert_to_tensor(labels)
    )
    losses = keras.ops.categorical_crossentropy(
        one_hot, mined, from_logits=True
    )
    scores = logits.astype("float64") - np.log(probability)
    for row in range(4):
        negatives = scores[row, (ids != ids[row]) & (ids != 0)]
        hardest = np.sort(negatives)[-2:]
        total = np.exp([scores[row, row], *hardest]).sum()
        expected = np.log(total) - scores[row, row]
        assert float(numpy(losses)[row]) == pytest.approx(expected, rel=1e-5)
