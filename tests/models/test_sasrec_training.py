"""SASRec learns, from every source of data and with every loss."""

import keras
import numpy as np
import pytest

from keras_bft.data import SequenceDataset
from keras_bft.losses import BCE
from keras_bft.losses import GBCE
from keras_bft.losses import FullSoftmax
from keras_bft.losses import SampledSoftmax
from keras_bft.models import SASRec
from tests.layers.layer_checks import numpy

NUM_ITEMS, MAX_LENGTH = 8, 6
each_model = pytest.mark.parametrize("bayesian", [False, True])


def successor(item, steps=1):
    """The pattern: 1, 2, ..., 8, 1, 2, ..."""
    return (item + steps - 1) % NUM_ITEMS + 1


def sequences():
    """One from each item, of lengths 4 to 7."""
    return [
        [successor(first, steps) for steps in range(4 + first % 4)]
        for first in range(1, NUM_ITEMS + 1)
    ]


def dataset(**options):
    return SequenceDataset(
        sequences(), **{"max_length": MAX_LENGTH, "batch_size": 8, **options}
    )


def one_batch():
    return dataset(bucket_lengths=[MAX_LENGTH], shuffle=False)[0]


def small(**options):
    keras.utils.set_random_seed(3)
    return SASRec(
        NUM_ITEMS,
        **{
            "max_length": MAX_LENGTH,
            "embedding_dim": 8,
            "num_layers": 1,
            "dropout": 0.0,
            "seed": 1,
            **options,
        },
    )


def compiled(model, loss=None, learning_rate=0.03, **options):
    model.compile(keras.optimizers.Adam(learning_rate), loss, **options)
    return model


def losses(model, *data, epochs=1, **options):
    options = {"shuffle": False, "verbose": 0, **options}
    return model.fit(*data, epochs=epochs, **options).history["loss"]


@each_model
def test_learns_what_comes_next(bayesian):
    model = compiled(small(bayesian=bayesian, num_layers=2))
    rows = [
        [successor(first, steps) for steps in range(MAX_LENGTH + 1)]
        for first in range(1, NUM_ITEMS + 1)
    ]
    data = SequenceDataset(rows, max_length=MAX_LENGTH, batch_size=8)
    curve = losses(model, data, epochs=60)
    assert curve[0] > 1.5 and curve[-1] < 0.3
    # Also for histories, and lengths, that no user of the training had.
    histories = [[7, 8], [3, 4, 5], [5, 6, 7, 8, 1, 2, 3, 4, 5], [2, 3, 4, 5]]
    ids, scores = model.recommend(histories, k=2, filter_seen=False)
    assert ids[:, 0].tolist() == [successor(h[-1]) for h in histories]
    assert np.all(scores[:, 0] > scores[:, 1])
    ids, _ = model.recommend([[7, 8]], k=1)
    assert ids.tolist() == [[1]]


LOSSES = {
    "full": FullSoftmax(),
    "uniform": SampledSoftmax(4),
    "log_uniform": SampledSoftmax(4, sampling="log_uniform"),
    "gbce": GBCE(num_negatives=4),
    "bce": BCE(num_negatives=2),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_every_loss_falls(loss):
    model = compiled(small(), loss)
    data = one_batch()
    curve = losses(model, *data, epochs=25)
    assert np.all(np.isfinite(curve))
    assert np.mean(curve[-5:]) < 0.7 * np.mean(curve[:3])
    assert model.evaluate(*data, verbose=0) < 0.8 * curve[0]


@pytest.mark.parametrize(
    "options",
    [
        {"form": "light", "precision": "token"},
        {"form": "light", "prior": "mlp", "key_precision": "per_head"},
        {"form": "full", "prior": "mlp", "precision": "token"},
        {"form": "full", "carry_units": False, "normalize_first": False},
        {"form": "full", "trainable_strength": True, "strength": 0.5},
        {"form": "light", "trainable_strength": True, "strength": 0.0},
        {"bayesian": False, "dropout_mode": "renormalized"},
    ],
    ids=str,
)
def test_every_option_trains(options):
    model = compiled(small(num_layers=2, dropout=0.2, **options))
    data = one_batch()
    model.build((None, MAX_LENGTH))
    before = {w.path: numpy(w) for w in model.trainable_weights}
    curve = losses(model, *data, epochs=2)
    assert np.all(np.isfinite(curve))
    for weight in model.trainable_weights:
        # Softmax does not see biases of keys, nor strength zero the filter's
        # parameters; and zero may be pushed down, where it cannot go.
        unseen = weight.path.endswith("key/bias") or (
            options.get("strength") == 0.0
            and weight.path.endswith(
                ("/strength", "/log_precision", "/log_process_noise")
            )
        )
        if not unseen:
            after = numpy(weight)
            assert np.all(np.isfinite(after))
            assert np.any(after != before[weight.path]), weight.path


def test_every_source_of_data_trains_the_same():
    inputs, targets = one_batch()

    def trained(*data, **options):
        return losses(compiled(small()), *data, epochs=4, **options)

    expected = trained(inputs, targets, batch_size=8)
    sources = [dataset(bucket_lengths=[MAX_LENGTH], shuffle=False)]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        sources.append(
            tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(8)
        )
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    pairs = data.TensorDataset(torch.tensor(inputs), torch.tensor(targets))
    sources.append(data.DataLoader(pairs, batch_size=8))
    for source in sources:
        np.testing.assert_allclose(trained(source), expected, rtol=1e-4)


def test_buckets_of_several_lengths_train_with_validation_data():
    model = compiled(small())
    training = dataset(bucket_lengths=[4, MAX_LENGTH], batch_size=3)
    history = model.fit(
        training, validation_data=one_batch(), epochs=6, verbose=0
    ).history
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_loss"][-1] < history["val_loss"][0]
    validation = dataset(bucket_lengths=[MAX_LENGTH])
    assert history["val_loss"][-1] == pytest.approx(
        model.evaluate(validation, verbose=0), rel=1e-5
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_policies_train(policy, tmp_path):
    data = one_batch()
    expected = losses(compiled(small(), learning_rate=0.01), *data, epochs=5)
    model = compiled(small(dtype=policy), learning_rate=0.01)
    curve = losses(model, *data, epochs=5)
    np.testing.assert_allclose(curve, expected, rtol=2e-2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    histories = [[1, 2], [5]]
    np.testing.assert_array_equal(
        loaded.score(histories), model.score(histories)
    )
    # The scale of the loss, under float16, goes on as well.
    for x, y in zip(
        loaded.optimizer.variables, model.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(numpy(x), numpy(y))


def test_the_seed_decides_the_dropout():
    items, _ = one_batch()

    def states(seed):
        model = small(dropout=0.5, seed=seed)
        return [numpy(model(items, training=True)) for _ in range(2)]

    first, second = states(1)
    np.testing.assert_array_equal(states(1), [first, second])
    assert np.any(states(2)[0] != first)
    assert np.any(first != second)


def test_prior_precisions_are_learned_of_items_that_occur():
    model = compiled(small(num_layers=2))
    inputs, targets = one_batch()
    inputs = np.where(inputs == 5, 0, inputs)
    targets = np.where(inputs == 0, 0, targets)
    model.build((None, MAX_LENGTH))
    before = numpy(model.prior.embeddings)[:, 0]
    losses(model, inputs, targets, epochs=3)
    moved = numpy(model.prior.embeddings)[:, 0] != before
    assert moved.tolist() == [False] + [i != 5 for i in range(1, 9)]
