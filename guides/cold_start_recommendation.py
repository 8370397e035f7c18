"""
Title: Cold-start recommendation
Author: the keras_bft developers
Date created: 2026/11/30
Description: Rare items, misclicks, and how sure a recommender is.
"""

"""
## What this guide does

A recommender has seen some items a thousand times and others twice, and some of
the clicks it learns from mean nothing. This guide trains a plain SASRec and one
with the filter on made-up clicks of which it is known which are genuine, and
asks:

1. Which recommends better, for rare and for common items?
2. What does the filter make of rare items, and of those that attract misclicks?
3. How sure is it of a list, and does that come true?

The answers are printed, with intervals. This is a small run of a minute or so,
one seed; the README reports real data and several seeds.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bft

# Set where the guide is tested: fewer users and epochs, and other answers.
QUICK = "KERAS_BFT_QUICK" in os.environ
USERS, ITEMS, EPOCHS = (400, 120, 3) if QUICK else (2500, 400, 40)

"""
## Clicks, some of which mean nothing

A genuine click follows from the one before it or from the user's taste. A
quarter of the clicks are random, and most of these fall on a tenth of the
items. Each user's last item is the test target, the one before it is for
validation.
"""

synthetic = keras_bft.data.synthetic_interactions(
    num_users=USERS, num_items=ITEMS, unreliable_share=0.25, seed=0
)
interactions = synthetic.interactions
split = keras_bft.data.leave_one_out(interactions.sequences())
counts = split.train_item_counts(interactions.num_items)
print(interactions)
print(
    "training clicks of an item, quartiles:",
    np.quantile(counts[1:], [0.25, 0.5, 0.75]),
)

"""
## Two models

All else is the same: architecture, seed, batches, loss. `initialize_prior`
starts the prior precision of each item at what its count supports: the
embedding of an item seen twice is as uncertain as a mean of two values. From
there it is learned. `PrecisionMonitor` logs the gain of each layer.
"""

MAX_LENGTH = 20


def train(bayesian):
    """A trained model and its history."""
    keras.utils.set_random_seed(0)
    model = keras_bft.models.SASRec(
        interactions.num_items,
        max_length=MAX_LENGTH,
        embedding_dim=32,
        num_layers=2,
        dropout=0.3,
        bayesian=bayesian,
        form="light",
        seed=0,
    )
    model.compile(keras.optimizers.Adam(0.005), keras_bft.losses.FullSoftmax())
    callbacks = []
    if bayesian:
        model.build((None, MAX_LENGTH))
        model.initialize_prior(counts)
        probe = keras_bft.data.pad_sequences(split.train[:64], MAX_LENGTH)
        callbacks = [
            keras_bft.training.PrecisionMonitor(probe, padding_mask=probe != 0)
        ]
    dataset = keras_bft.data.SequenceDataset(
        split.train,
        max_length=MAX_LENGTH,
        batch_size=128,
        bucket_lengths=[MAX_LENGTH],  # One shape, so one compilation.
        seed=0,
    )
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    return model, history


plain, _ = train(bayesian=False)
model, history = train(bayesian=True)
keras_bft.diagnostics.plot_training(history)
plt.show()

"""
## Rare and common targets

`rank_targets` ranks each user's test item among the whole catalogue. Users come
back to items here, so those of the history stay in it.
`comparison_table` compares the two models user by user, with bootstrap
intervals, overall and by how often the target was seen in training. An interval
that holds zero is no difference.
"""

rankings = [
    keras_bft.evaluation.rank_targets(
        each,
        split.test_histories,
        split.test_targets,
        filter_seen=False,
        verbose=False,
    )
    for each in (plain, model)
]
strata = keras_bft.evaluation.quartile_strata(
    counts[split.test_targets], "target's training count"
)
print(
    keras_bft.evaluation.comparison_table(
        *rankings, names=("plain", "BFT"), metrics=("hr@10",), strata=[strata]
    )
)

"""
## What the filter makes of an item

`trace` returns what each layer computed for a batch. By how often an item was
seen: the precision that it brings, which began at its count, and the gain, the
share of what attention observes that its state takes on.
"""

histories = keras_bft.data.pad_sequences(split.test_histories[:500], MAX_LENGTH)
traced = keras_bft.diagnostics.trace(model, histories)
figure, axes = plt.subplots(
    2, sharex=True, figsize=(6.4, 6.4), layout="constrained"
)
for value, part in zip(("prior_log_precision", "gain"), axes, strict=True):
    keras_bft.diagnostics.plot_by_count(
        traced,
        counts[histories],
        padding_mask=histories != 0,
        value=value,
        axes=part,
    )
axes[0].set_xlabel("")
plt.show()

"""
Were the misclicks found? `item_reliability` is the share of genuine clicks on
an item, which no model was told. The learned precision also has the count in
it, so the correlation is taken twice: as it is, and with what the count
explains removed from both.
"""

clicked = np.flatnonzero(counts[1:] > 0) + 1
learned = keras.ops.convert_to_numpy(
    model.prior(np.arange(interactions.num_items + 1)[None])
).reshape(-1)[clicked]
reliability = synthetic.item_reliability()[clicked]


def without_count(x):
    """What a straight line in the log of the count leaves of `x`."""
    log_count = np.log(counts[clicked])
    return x - np.polyval(np.polyfit(log_count, x, 1), log_count)


raw = np.corrcoef(learned, reliability)[0, 1]
partial = np.corrcoef(without_count(learned), without_count(reliability))[0, 1]
print(f"correlation with the true reliability: {raw:.2f}")
print(f"... given the count:                   {partial:.2f}")

"""
One user's history, as the filter reads it: above, which items count as more
reliable than the others, through the layers; below, the attention.
"""

user = int(np.argmin(np.abs(np.count_nonzero(histories, axis=1) - 12)))
keras_bft.diagnostics.plot_precision_map(
    traced,
    example=user,
    tokens=interactions.decode(histories[user][histories[user] != 0]),
    padding_mask=histories != 0,
)
plt.show()

"""
## How sure is a list?

With `return_confidence=True`, `recommend` also says with what probability each
item, and the list as a whole, holds the next one. For the model with the filter
the precision of the user's state enters: a logit counts the less, the less
certain it is. A plain model has its softmax alone.
"""


def confidence_of(each):
    """Stated confidence of every user's list, and whether it was right."""
    ids, _, confidence = each.recommend(
        split.test_histories, k=10, filter_seen=False, return_confidence=True
    )
    hits = np.any(ids == np.asarray(split.test_targets)[:, None], axis=1)
    return confidence.lists, hits


evaluation = keras_bft.evaluation
results = {"plain": confidence_of(plain), "BFT": confidence_of(model)}
for name, (lists, hits) in results.items():
    error = evaluation.expected_calibration_error(
        lists, hits, num_bins=10, binning="mass"
    )
    order = np.argsort(lists)
    quarter = len(order) // 4
    print(
        f"{name:<6} hit rate {hits.mean():.3f}, stated {lists.mean():.3f}, "
        f"calibration error {error:.3f}; least sure quarter "
        f"{hits[order[:quarter]].mean():.3f}, most sure "
        f"{hits[order[-quarter:]].mean():.3f}"
    )

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
keras_bft.diagnostics.plot_reliability(
    {
        name: evaluation.reliability_curve(*result, num_bins=8, binning="mass")
        for name, result in results.items()
    },
    axes=axes[0],
)
keras_bft.diagnostics.plot_risk_coverage(
    {name: evaluation.risk_coverage(*r) for name, r in results.items()},
    axes=axes[1],
)
plt.show()

"""
Left: a point on the dashed line came true as stated. Right: keep only the lists
that the model is surest of, and the share of misses among them falls; the
smaller the area, the better misses are told from hits.

Both kinds of confidence can be made to fit by a temperature, one number that is
found on the validation targets (`keras_bft.evaluation.fit_temperature`). It
moves the points towards the line and leaves the order of users as it is.

## Items that nobody has clicked on

An item without clicks has no embedding. Give the model what is known of items
besides their ids, with `item_features`, and `model.add_items` makes room for
new ones, which share the prior precision of an item known by its features
alone. The README shows how.
"""
