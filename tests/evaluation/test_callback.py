import keras
import numpy as np

from keras_bft.evaluation import RankingCallback
from keras_bft.evaluation import rank_targets


class Popularity(keras.Model):
    """Learns one score an item; just enough of a recommender to train."""

    def __init__(self, num_items):
        super().__init__()
        self.scores = self.add_weight(shape=(num_items + 1,), name="scores")

    def call(self, inputs):
        return keras.ops.take(self.scores, inputs)

    def score(self, histories):
        scores = keras.ops.convert_to_numpy(self.scores.value)
        return np.tile(scores, (len(histories), 1))


def fit(callbacks, epochs):
    keras.utils.set_random_seed(0)
    model = Popularity(4)
    model.compile(keras.optimizers.SGD(0.5), loss="mse")
    items = np.arange(5)
    history = model.fit(
        items,
        np.array([0.0, 1, 2, 3, 4]),
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )
    return model, history.history


def test_logs_hold_the_measures_of_the_weights_after_each_epoch():
    model, history = fit(
        [RankingCallback([[4], []], [3, 3], ks=(1, 2))], epochs=20
    )
    assert [len(history[f"val_{name}"]) for name in ("hr@1", "mrr")] == [20, 20]
    # Trained, item 4 is first and item 3 second: first for the user whose
    # history holds item 4.
    expected = rank_targets(model, [[4], []], [3, 3], verbose=False)
    assert expected.ranks.tolist() == [1, 2]
    for name, value in expected.summary(ks=(1, 2)).items():
        assert history[f"val_{name}"][-1] == value


def test_seen_items_are_kept_when_asked():
    _, history = fit(
        [RankingCallback([[4], []], [3, 3], filter_seen=False, ks=(1, 2))],
        epochs=20,
    )
    assert history["val_hr@1"][-1] == 0.0
    assert history["val_hr@2"][-1] == 1.0


def test_early_stopping_reads_the_logs_and_restores_the_best_weights():
    class Reverse(keras.callbacks.Callback):
        """Turns the ranking round once it is learned."""

        def on_epoch_end(self, epoch, logs=None):
            if epoch >= 15:
                self.model.scores.assign(-np.arange(5.0))

    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg@10", mode="max", patience=3, restore_best_weights=True
    )
    model, history = fit(
        [Reverse(), RankingCallback([[]], [4]), stopping], epochs=40
    )
    assert len(history["val_ndcg@10"]) < 40
    assert stopping.best == 1.0
    ranks = rank_targets(model, [[]], [4], verbose=False).ranks
    assert ranks.tolist() == [1]
