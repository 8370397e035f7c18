"""
Title: TFRS retrieval and serving
Author: the keras_bft developers
Date created: 2026/11/30
Description: A Keras 3 filter as the query tower of TensorFlow Recommenders.
Backend: TensorFlow
Needs: tensorflow_recommenders
"""

"""
## Two Keras in one model

TensorFlow Recommenders (TFRS) is written for Keras 2, this library for Keras 3.
Put into a `tfrs.Model` as it is, a Keras 3 model trains nothing: Keras 2 does
not see its weights. `Keras3Layer` carries it across, weights, losses and
seeds of dropout included. Install it with `pip install "keras-bft[tfrs]"`.

TFRS must find Keras 2. `TF_USE_LEGACY_KERAS` says so, and has to be set before
anything uses `tf.keras`.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["KERAS_BACKEND"] = "tensorflow"

import tempfile

import keras
import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

import keras_bft
from keras_bft.integrations.tfrs import Keras3Layer
from keras_bft.integrations.tfrs import check_wrapped

# Set where the guide is tested: fewer users and epochs, and other answers.
QUICK = "KERAS_BFT_QUICK" in os.environ
USERS, ITEMS, EPOCHS = (300, 100, 2) if QUICK else (2500, 300, 30)
LENGTH = 20

"""
## Data

Histories padded at the left, so that the last position is always the newest
item, and the item that came next.
"""

synthetic = keras_bft.data.synthetic_interactions(USERS, ITEMS, seed=0)
interactions = synthetic.interactions
split = keras_bft.data.leave_one_out(interactions.sequences())
num_items = interactions.num_items


def pad_left(histories):
    """Newest items of histories, `(n, LENGTH)`."""
    rows = np.zeros((len(histories), LENGTH), "int32")
    for row, history in zip(rows, histories, strict=True):
        newest = history[-LENGTH:]
        row[LENGTH - len(newest) :] = newest
    return rows


histories, following = [], []
for sequence in split.train:
    for end in range(max(1, len(sequence) - 5), len(sequence)):
        histories.append(sequence[:end])
        following.append(sequence[end])
train = (
    tf.data.Dataset.from_tensor_slices(
        {
            "history": pad_left(histories),
            "item": np.asarray(following, "int32"),
        }
    )
    .shuffle(len(histories), seed=0)
    .batch(256, drop_remainder=True)
)
print(interactions, len(histories), "examples")

"""
## Two towers

The query tower is a SASRec with the filter, read at the last position. The item
tower is its item embedding, so the items that are predicted are those that are
read. Both are Keras 3; what is around them is TFRS as usual. The other items of
a batch are the negatives, so common items are negatives often: their share
among the targets corrects for that.
"""

shares = np.bincount(following, minlength=num_items + 1) / len(following)
shares = tf.constant(shares, "float32")

keras.utils.set_random_seed(0)
sasrec = keras_bft.models.SASRec(
    num_items, max_length=LENGTH, embedding_dim=32, dropout=0.2, seed=0
)
history = keras.Input((LENGTH,), dtype="int32")
query_tower = keras.Model(history, sasrec(history)[:, -1])


class Retrieval(tfrs.Model):
    """Queries and items that are trained to find each other."""

    def __init__(self):
        super().__init__()
        self.query_tower = Keras3Layer(query_tower)
        self.item_tower = Keras3Layer(sasrec.item_embedding)
        self.task = tfrs.tasks.Retrieval(
            loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
            remove_accidental_hits=True,
        )

    def compute_loss(self, batch, training=False):
        query = self.query_tower(batch["history"], training=training)
        item = self.item_tower(batch["item"])
        return self.task(
            query,
            item,
            candidate_ids=tf.cast(batch["item"], "int64"),
            candidate_sampling_probability=tf.gather(shares, batch["item"]),
        )


tf.keras.utils.set_random_seed(0)
model = Retrieval()
check_wrapped(model)  # Raises an error if a Keras 3 object is not wrapped.
model.compile(tf.keras.optimizers.Adam(0.005))
fitted = model.fit(train, epochs=EPOCHS, verbose=0)
losses = fitted.history["loss"]
print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
assert losses[-1] < losses[0]

"""
## An index that serves

`BruteForce` compares a query with all items; `ScaNN` takes its place where
there are millions. The SavedModel runs where TensorFlow alone is installed,
without Keras 3, this library or TFRS.
"""

index = tfrs.layers.factorized_top_k.BruteForce(model.query_tower, k=10)
all_items = tf.range(1, num_items + 1)
index.index(model.item_tower(all_items), all_items)

queries = pad_left(split.test_histories)
scores, items = index(queries)
hits = np.any(items.numpy() == split.test_targets[:, None], axis=1)
print(f"HR@10 of the test items: {hits.mean():.3f}")

with tempfile.TemporaryDirectory() as folder:
    tf.get_logger().setLevel("ERROR")  # Says that TFRS' index has no config.
    tf.saved_model.save(index, folder)
    served_scores, served_items = tf.saved_model.load(folder)(queries)
np.testing.assert_array_equal(served_items, items)
print("served:", interactions.decode(served_items.numpy()[0]))

"""
## The towers elsewhere

The query tower is an ordinary Keras 3 model: saved as `.keras` it loads on JAX
and PyTorch. The SASRec inside was trained, so what the library does with one
works too, such as its confidence. It is that of a softmax over all items, which
training with negatives from the batch only approximates: look at
`keras_bft.evaluation.reliability_curve` before relying on it.
"""

ids, _, confidence = sasrec.recommend(
    split.test_histories[:3], k=5, filter_seen=False, return_confidence=True
)
for row, sure in zip(ids, confidence.lists, strict=True):
    print(interactions.decode(row), f"with probability {sure:.2f}")

"""
`examples/tfrs_retrieval.py` does the same for a file of clicks, with
categories of items, `FactorizedTopK` metrics, early stopping, checkpoints and a
server that takes item names.
"""
