import keras
import numpy as np
import pytest

from keras_bft.layers import ItemEncoder
from tests.layers.layer_checks import check_compiled
from tests.layers.layer_checks import check_output_spec
from tests.layers.layer_checks import check_policies
from tests.layers.layer_checks import check_saving
from tests.layers.layer_checks import numpy
from tests.layers.layer_checks import randomize

NUM_ITEMS, NUM_NEW, DIM = 6, 2, 4
# Row 0 is not read, and may hold anything.
CATEGORIES = np.array(
    [[-9, 9], [0, 1], [1, 2], [2, 0], [0, 0], [2, 2], [1, 0]], "int64"
)
DENSE = np.linspace(-1.0, 1.0, 7 * 3).reshape(7, 3)
# All items, padding and a special id.
IDS = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], "int32")


def make_layer(**options):
    return ItemEncoder(
        # Rows of padding, four known items and the special id.
        keras.layers.Embedding(
            6, DIM, dtype=options.get("dtype"), name="id_embedding"
        ),
        **{
            "num_items": NUM_ITEMS,
            "categorical": CATEGORIES,
            "dense": DENSE,
            "num_new_items": NUM_NEW,
            "seed": 1,
            **options,
        },
    )


def built(**options):
    layer = make_layer(**options)
    layer.build(IDS.shape)
    randomize(layer)
    return layer


def features_of(layer, item):
    vector = DENSE.astype("float32")[item] @ numpy(layer.dense_kernel)
    for category, offset in zip(CATEGORIES[item], (0, 3), strict=True):
        if category:
            vector += numpy(layer.category_embeddings)[offset + category]
    return vector


def expected(layer):
    """Vectors of ids 0 to 7."""
    table = numpy(layer.id_embedding.embeddings)
    vectors = [np.zeros(DIM)]
    for item in range(1, NUM_ITEMS + 1):
        own = table[item] if item <= NUM_ITEMS - NUM_NEW else 0.0
        vectors.append(own + features_of(layer, item))
    return np.stack([*vectors, table[5]])


def test_an_item_is_its_id_and_its_features():
    layer = built()
    vectors = expected(layer)
    np.testing.assert_allclose(numpy(layer(IDS)), vectors[IDS], atol=1e-5)
    np.testing.assert_allclose(numpy(layer.table()), vectors[:7], atol=1e-5)
    np.testing.assert_allclose(
        numpy(layer.table(known=True)), vectors[:5], atol=1e-5
    )
    rows = numpy(layer.id_rows(IDS)).tolist()
    assert rows == [[0, 1, 2, 3], [4, 0, 0, 5]]
    assert len(layer.trainable_weights) == 3
    assert len(layer.non_trainable_weights) == 2


def test_it_starts_as_an_embedding_of_the_ids():
    layer = make_layer()
    vectors = numpy(layer(IDS))
    table = numpy(layer.id_embedding.embeddings)
    np.testing.assert_array_equal(vectors[0, 1:], table[1:4])
    np.testing.assert_array_equal(vectors[1, 1:3], 0.0)


def test_training_drops_ids_and_never_features():
    layer = built(id_dropout=0.4)
    ids = np.tile(IDS, (500, 1))
    rows = numpy(layer.id_rows(ids, training=True))
    known = (ids > 0) & (ids <= NUM_ITEMS - NUM_NEW)
    assert np.mean(rows[known] == 0) == pytest.approx(0.4, abs=0.03)
    assert np.all(rows[ids == 7] == 5)
    assert np.any(rows != numpy(layer.id_rows(ids, training=True)))
    dropped = built(id_dropout=1.0 - 1e-6)
    alone = [features_of(dropped, item) for item in range(1, 5)]
    table = numpy(dropped.table(known=True, training=True))
    np.testing.assert_allclose(table[1:], alone, atol=1e-5)
    vectors = numpy(dropped(IDS, training=True))
    np.testing.assert_allclose(vectors[0, 1:], alone[:3], atol=1e-5)
    kept = built(id_dropout=0.0)
    assert np.all(
        numpy(kept.id_rows(IDS, training=True)) == numpy(kept.id_rows(IDS))
    )


def test_behaves_as_a_keras_layer(tmp_path):
    check_output_spec(make_layer, [IDS])
    check_policies(make_layer, [IDS])
    check_compiled(make_layer, [IDS])
    check_saving(make_layer, [IDS], tmp_path)


def test_its_table_is_float32_under_mixed_precision():
    table = built(dtype="mixed_bfloat16").table()
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    np.testing.assert_allclose(numpy(table), numpy(built().table()), atol=1e-6)


def test_config_has_sizes_in_place_of_features():
    layer = make_layer(num_categories=[5, 3], id_dropout=0.25)
    config = layer.get_config()
    assert config["num_categories"] == [5, 3] and config["num_dense"] == 3
    assert "categorical" not in config and "dense" not in config
    again = ItemEncoder.from_config(config)
    assert again.get_config() == config
    again.build(IDS.shape)
    assert not numpy(again.categorical).any()
    layer.build(IDS.shape)
    assert [w.shape for w in again.weights] == [w.shape for w in layer.weights]


def with_value(array, item, value):
    array = np.array(array)
    array[item] = value
    return array


@pytest.mark.parametrize(
    "options, message",
    [
        ({"categorical": CATEGORIES[1:]}, r"= 7, columns\)`.*\(6, 2\)"),
        ({"categorical": CATEGORIES[:, 0]}, r"shape \(7,\)"),
        ({"categorical": CATEGORIES * 1.0}, "dtype float64"),
        (
            {"categorical": with_value(CATEGORIES, 3, -1)},
            "Received: -1 for item 3 in column 0",
        ),
        ({"num_categories": [3, 2]}, "Received: 2 for item 2 in column 1"),
        ({"num_categories": [3]}, "2 columns for num_categories"),
        ({"num_categories": [3, 0]}, "1 or more"),
        ({"dense": DENSE[1:]}, r"shape \(6, 3\)"),
        (
            {"dense": with_value(DENSE, (4, 2), np.nan)},
            "Received: nan for item 4 in column 2",
        ),
        ({"dense": with_value(DENSE, 1, 1e300)}, "Received: 1e[+]300"),
        ({"dense": DENSE.astype("str")}, "must hold numbers"),
        ({"num_dense": 2}, "3 columns, num_dense=2"),
        ({"categorical": None, "dense": None}, "needs features"),
        ({"num_new_items": 6}, "num_new_items=6"),
        ({"num_new_items": -1}, "num_new_items=-1"),
        ({"num_new_items": 0}, "input_dim=6"),
        ({"id_dropout": 1.0}, "id_dropout=1.0"),
        ({"num_items": 0}, "num_items=0"),
    ],
)
def test_wrong_arguments_raise(options, message):
    with pytest.raises(ValueError, match=message):
        make_layer(**options)
