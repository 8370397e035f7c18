"""
Title: BERT4Rec and HSTU
Author: the keras_bft developers
Date created: 2026/11/30
Description: Masked items, timestamps, and states that a server keeps.
"""

"""
## Three recommenders, one way of use

`SASRec`, `BERT4Rec` and `HSTU` are used alike: compile with a loss over items,
fit, `score`, `recommend`. They differ in what they read and in how their layers
observe.

| | trains on | attention | filter's observation |
|---|---|---|---|
| SASRec | the next item | causal softmax | kriging: weighted mean of values |
| BERT4Rec | masked items | softmax in both directions | kriging |
| HSTU | the next item, and times | causal, no softmax | a sum of values |

Each has `bayesian=True` or `False`.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bft

# Set where the guide is tested: fewer users and epochs, and other answers.
QUICK = "KERAS_BFT_QUICK" in os.environ
USERS, ITEMS, EPOCHS = (300, 100, 2) if QUICK else (2500, 300, 30)
MAX_LENGTH = 20

synthetic = keras_bft.data.synthetic_interactions(USERS, ITEMS, seed=0)
interactions = synthetic.interactions
split = keras_bft.data.leave_one_out(interactions.sequences())
print(interactions)

SIZE = {"max_length": MAX_LENGTH, "embedding_dim": 32, "form": "light"}
BATCHES = {
    "max_length": MAX_LENGTH,
    "batch_size": 128,
    "bucket_lengths": [MAX_LENGTH],  # One shape, so one compilation.
    "seed": 0,
}


def test(model, **timestamps):
    """Hit rate at 10 of each user's last item, among all items."""
    ranking = keras_bft.evaluation.rank_targets(
        model,
        split.test_histories,
        split.test_targets,
        filter_seen=False,
        verbose=False,
        **timestamps,
    )
    return ranking.hit_rate(10)


"""
## BERT4Rec: items behind a mask

`MaskedItemDataset` hides a share of the items behind the mask id, and the
model guesses them from what stands before and after. `recommend` puts the mask
behind the history by itself. What the filter has to say of a mask is worth a
look: it is a token that nothing is known of.
"""

keras.utils.set_random_seed(0)
bert = keras_bft.models.BERT4Rec(
    interactions.num_items, dropout=0.2, seed=0, **SIZE
)
bert.compile(keras.optimizers.Adam(0.005), keras_bft.losses.FullSoftmax())
masked = keras_bft.data.MaskedItemDataset(
    split.train, mask_id=bert.mask_id, mask_rate=0.4, **BATCHES
)
history = bert.fit(masked, epochs=EPOCHS, verbose=0)
losses = history.history["loss"]
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
print(f"BERT4Rec HR@10 {test(bert):.3f}")

items = keras_bft.data.pad_sequences(
    [[*history[-10:], bert.mask_id] for history in split.test_histories[:256]],
    11,
)
traced = keras_bft.diagnostics.trace(bert, items)
table = traced.to_dataframe(
    padding_mask=items != 0, is_mask=items == bert.mask_id
)
columns = ["prior_log_precision", "gain", "effective_sample_size"]
print(table.groupby(["layer", "is_mask"])[columns].mean().round(3))

"""
In a trained model the mask has a lower prior precision than an item, and a
larger gain: its state takes on more of what attention observes. Nobody told the
model what the mask is.

One history with its mask, as the layers read it:
"""

row = int(np.argmax(np.count_nonzero(items, axis=1)))
tokens = [
    "mask" if item == bert.mask_id else interactions.decode([item])[0]
    for item in items[row][items[row] != 0]
]
keras_bft.diagnostics.plot_precision_map(
    traced, example=row, tokens=tokens, padding_mask=items != 0
)
plt.show()

"""
## HSTU: when it happened

The clicks get times: most follow within minutes, and after one in five clicks
the user is away for days. `num_time_buckets` makes the model read them. Its
attention has a learned bias for each distance in positions and for each bucket
of the time between two items.

Attention without softmax is a sum, not a mean, so its variance is estimated by
a sandwich (see *How the mathematics was chosen*). An HSTU layer has no
feed-forward network: it predicts with process noise alone.
"""

rng = np.random.default_rng(0)
sequences = interactions.sequences()
times = []
for sequence in sequences:
    away = rng.random(len(sequence)) < 0.2
    pauses = np.where(
        away,
        rng.exponential(3 * 86400, len(sequence)),
        rng.exponential(120, len(sequence)),
    )
    times.append(1 + np.cumsum(pauses).astype("int64"))


def times_of(rows):
    """Times of the first items of each user."""
    return [time[: len(row)] for time, row in zip(times, rows, strict=True)]


train_times = times_of(split.train)
test_times = times_of(split.test_histories)

keras.utils.set_random_seed(0)
hstu = keras_bft.models.HSTU(
    interactions.num_items, num_time_buckets=32, dropout=0.2, seed=0, **SIZE
)
hstu.compile(keras.optimizers.Adam(0.005), keras_bft.losses.FullSoftmax())
dataset = keras_bft.data.SequenceDataset(
    split.train, timestamps=train_times, **BATCHES
)
history = hstu.fit(dataset, epochs=EPOCHS, verbose=0)
losses = history.history["loss"]
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
print(f"HSTU HR@10 {test(hstu, timestamps=test_times):.3f}")

"""
The gain along the history. At the first position there is nothing to see but
the item itself.
"""

ids = keras_bft.data.pad_sequences(split.test_histories[:256], MAX_LENGTH)
seconds = keras_bft.data.pad_sequences(test_times[:256], MAX_LENGTH)
traced = keras_bft.diagnostics.trace(hstu, (ids, seconds))
keras_bft.diagnostics.plot_by_position(traced, padding_mask=ids != 0)
plt.show()

"""
## A state that a server keeps

A causal model need not read a history again for each new click. `start` reads
histories, `append` adds what came since, and `recommend` takes the state in the
place of the histories.
"""

some = [list(row) for row in split.test_histories[:4]]
some_times = [list(row) for row in test_times[:4]]
state = hstu.start(
    [row[:-1] for row in some], timestamps=[row[:-1] for row in some_times]
)
state = hstu.append(
    state, [row[-1] for row in some], [row[-1] for row in some_times]
)
kept, kept_scores = hstu.recommend(state, k=5)
anew, anew_scores = hstu.recommend(some, k=5, timestamps=some_times)
print(kept)
np.testing.assert_array_equal(kept, anew)
np.testing.assert_allclose(kept_scores, anew_scores, atol=1e-4)
