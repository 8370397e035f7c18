"""
Title: A Kalman filter you can check
Author: the keras_bft developers
Date created: 2026/11/30
Description: The filter's parts against exact answers, where these are known.
"""

"""
## What is checked

A Bayesian Filtering Transformer layer is built from the steps of a Kalman
filter. On linear-Gaussian data the right answer of each step is known, so
nothing has to be believed: this guide computes it in NumPy, in float64, and
compares. Every comparison is an `assert` with its tolerance.

1. `Update` and `Predict` as functions, for a random walk.
2. The same as layers, for channels that forget at different rates.
3. Attention that sees one measurement at a time.
4. Attention with uniform weights, where measurements of one quantity are fused
   and their variance has to be estimated.

Precisions are inverse variances, and the library carries their natural
logarithm. Run it on any backend, with `KERAS_BACKEND` set to `jax`,
`tensorflow` or `torch`.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_bft import layers
from keras_bft.ops import kalman_update
from keras_bft.ops import predict_log_precision

# Relative, of float32 results over all steps.
TOLERANCE = 1e-4

"""
## Data: a random walk, seen through noise

A quantity $x_t$ walks at random, and each step brings one measurement of it:

$$x_t = x_{t-1} + \\mathcal N(0, q), \\qquad y_t = x_t + \\mathcal N(0, r_t).$$

The noise $r_t$ of the measurements varies by a factor of about 400 and is
known, as it is for a sensor that reports its own accuracy. 300 series of 25
steps.
"""

SERIES, STEPS = 300, 25
q, prior_variance = 0.3, 4.0

rng = np.random.default_rng(0)
start = rng.normal(0.0, prior_variance**0.5, (SERIES, 1))
walk = rng.normal(0.0, q**0.5, (SERIES, STEPS - 1)).cumsum(axis=1)
x = np.concatenate([start, start + walk], axis=1)
r = np.exp(rng.uniform(-3.0, 3.0, (SERIES, STEPS)))
y = x + rng.normal(size=x.shape) * r**0.5

"""
## The exact filter

The textbook form, in variances. `a` is the transition, one for a random walk.
"""


def exact_filter(y, r, q, prior_variance, a=1.0):
    """Posterior means and variances of every step, `(..., steps)`."""
    mean = np.zeros(y.shape[:-1])
    variance = np.full(y.shape[:-1], prior_variance)
    means, variances = np.empty(y.shape), np.empty(y.shape)
    for t in range(y.shape[-1]):
        gain = variance / (variance + r[..., t])
        mean = mean + gain * (y[..., t] - mean)
        variance = (1.0 - gain) * variance
        means[..., t], variances[..., t] = mean, variance
        mean, variance = a * mean, a**2 * variance + q
    return means, variances


exact_means, exact_variances = exact_filter(y, r, q, prior_variance)

"""
## 1. Update and Predict as functions

`kalman_update` takes a state and its log-precision, an innovation (what the
observation adds to the state) and the log-precision of the observation. Its
gain is a sigmoid of the difference of two log-precisions, which is the Kalman
gain written so that no precision is ever exponentiated:

$$K = \\frac{\\lambda_{obs}}{\\lambda + \\lambda_{obs}}
    = \\sigma(\\log\\lambda_{obs} - \\log\\lambda).$$

`predict_log_precision` lets the variance grow by the process noise.

A filter's tensors are (batch, tokens, channels). Here the series are the batch,
and there is one token of one channel.
"""


def filter_with_ops(y, r):
    """Posterior means, variances and gains of every step."""
    state = ops.zeros((SERIES, 1, 1))
    log_precision = ops.full((SERIES, 1, 1), -np.log(prior_variance))
    steps = []
    for t in range(STEPS):
        measured = ops.convert_to_tensor(y[:, t, None, None], "float32")
        state, log_precision, gain = kalman_update(
            state, log_precision, measured - state, -np.log(r[:, t, None, None])
        )
        steps.append((state, ops.exp(-log_precision), gain))
        log_precision = predict_log_precision(log_precision, None, np.log(q))
    return [
        np.stack([ops.convert_to_numpy(x)[:, 0, 0] for x in part], axis=1)
        for part in zip(*steps, strict=True)
    ]


def check(name, means, variances, exact_means, exact_variances):
    """Prints and asserts the largest errors of means and variances."""
    # An error of a mean counts by the posterior's standard deviation.
    error = np.abs(means - exact_means) / exact_variances**0.5
    relative = np.abs(variances / exact_variances - 1.0)
    print(
        f"{name}: mean off by {error.max():.1e} standard deviations, "
        f"variance by {relative.max():.1e} of itself, at most"
    )
    assert error.max() < TOLERANCE and relative.max() < TOLERANCE


means, variances, gains = filter_with_ops(y, r)
check("Update and Predict", means, variances, exact_means, exact_variances)

"""
Here is one series. The filter follows precise measurements and passes over the
others.
"""

figure, (above, below) = plt.subplots(
    2, sharex=True, figsize=(6.4, 5), height_ratios=[2, 1], layout="constrained"
)
time = np.arange(1, STEPS + 1)
half_width = 1.96 * variances[0] ** 0.5
above.fill_between(
    time,
    means[0] - half_width,
    means[0] + half_width,
    color="#0072B2",
    alpha=0.2,
    linewidth=0,
    label="filter, 95 % interval",
)
above.plot(time, means[0], color="#0072B2", label="filter, mean")
above.plot(time, x[0], color="black", linewidth=1, label="truth")
sure = r[0] < 1.0
for chosen, face, name in (
    (sure, "#D55E00", "r < 1"),
    (~sure, "white", "r > 1"),
):
    above.scatter(
        time[chosen],
        y[0, chosen],
        s=18,
        facecolor=face,
        edgecolor="#D55E00",
        zorder=3,
        label=f"measured, {name}",
    )
above.set_ylabel("x")
above.legend(
    frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5)
)
below.plot(time, gains[0], color="#009E73", marker="o", markersize=3)
below.set_ylabel("Kalman gain K")
below.set_ylim(0, 1)
below.set_xlabel("step")
for axes in (above, below):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
plt.show()

"""
### What knowing the noise is worth

A residual connection that adds the same share of every innovation, as one of a
standard Transformer layer does, treats all measurements alike. The best such
share can be searched for. It has a larger error than the filter, and no
interval.
"""


def fixed_gain(share):
    """Root mean squared error where every step has the same gain."""
    mean, squares = np.zeros(SERIES), 0.0
    for t in range(STEPS):
        mean = mean + share * (y[:, t] - mean)
        squares += np.mean((mean - x[:, t]) ** 2) / STEPS
    return squares**0.5


best = min(np.linspace(0.05, 1.0, 20), key=fixed_gain)
filter_error = np.mean((means - x) ** 2) ** 0.5
inside = np.abs(means - x) < 1.96 * variances**0.5
print(f"root mean squared error, filter:          {filter_error:.3f}")
print(f"... the best fixed gain, {best:.2f}:            {fixed_gain(best):.3f}")
print(f"truths inside the filter's 95 % interval: {inside.mean():.3f}")
assert filter_error < 0.8 * fixed_gain(best)
assert abs(inside.mean() - 0.95) < 0.01

"""
## 2. The same as layers

`PrecisionFeedForward` is Predict: the state passes through `h + f(h)`, its
variance through the squared diagonal `(1 + J)^2` of the Jacobian, and the
process noise is added. With `f(h) = (a - 1) h` this is a linear system that
forgets, with a rate `a` of its own in each channel. Four channels are four
systems.

Usually the weights are learned. Here they are set, to what the data were made
with.
"""

a = np.array([1.0, 0.95, 0.8, 0.5])
noise = np.array([0.3, 0.1, 0.5, 1.0])
D, DEPTH = len(a), 10

x4 = np.empty((SERIES, D, DEPTH))
x4[..., 0] = rng.normal(0.0, prior_variance**0.5, (SERIES, D))
for t in range(1, DEPTH):
    shock = rng.normal(size=(SERIES, D)) * noise**0.5
    x4[..., t] = a * x4[..., t - 1] + shock
r4 = np.exp(rng.uniform(-3.0, 3.0, (SERIES, D, DEPTH)))
y4 = x4 + rng.normal(size=x4.shape) * r4**0.5
exact = exact_filter(y4, r4, noise, prior_variance, a)

predict = layers.PrecisionFeedForward(
    hidden_dim=D, activation="linear", jacobian="diagonal", normalization=None
)
predict.build((None, 1, D), (None, 1, D))
predict.input_dense.kernel.assign(np.eye(D))
predict.output_dense.kernel.assign(np.diag(a - 1.0))
predict.log_process_noise.assign(np.log(noise))
update = layers.KalmanResidual()

"""
Depth is time: the model below is ten pairs of Update and Predict on top of each
other, which share their weights, and each pair meets one new measurement.
"""


def deep_filter(observe):
    """A Functional model of all steps, from measurements to posteriors.

    Args:
        observe: From state, log-precision, measurement and its log-precision,
            `(B, 1, D)` each, to the innovation and its log-precision.
    """
    measured = keras.Input((DEPTH, D))
    measured_log_precision = keras.Input((DEPTH, D))
    state = ops.zeros_like(measured[:, :1])
    log_precision = state - np.log(prior_variance)
    posteriors = []
    for t in range(DEPTH):
        innovation, observed = observe(
            state,
            log_precision,
            measured[:, t : t + 1],
            measured_log_precision[:, t : t + 1],
        )
        state, log_precision = update(
            state, log_precision, innovation, observed
        )
        posteriors.append(ops.concatenate([state, log_precision], axis=-1))
        state, log_precision = predict(state, log_precision)
    return keras.Model(
        [measured, measured_log_precision], ops.concatenate(posteriors, axis=1)
    )


def run(model, y, r):
    """Posterior means and variances, `(series, channels, steps)`."""
    inputs = [x.transpose(0, 2, 1).astype("float32") for x in (y, -np.log(r))]
    both = model.predict(inputs, batch_size=SERIES, verbose=0)
    both = both.transpose(0, 2, 1)
    return both[:, :D], np.exp(-both[:, D:])


model = deep_filter(
    lambda state, _, y, log_precision: (y - state, log_precision)
)
check("KalmanResidual and PrecisionFeedForward", *run(model, y4, r4), *exact)

"""
## 3. Attention that sees one key

In a Transformer the innovation comes from attention. `BFTAttention` returns it
together with the precision that it has. When a query sees one key, there is
nothing to average and no spread to estimate, and the observation must be as
precise as that key. So let attention read the difference of each measurement
from the state, with the projections set to the identity. A token has one
precision for the weights of attention, so all channels have the same noise
here.
"""

r1 = np.repeat(r4[:, :1], D, axis=1)
y1 = x4 + rng.normal(size=x4.shape) * r1**0.5

attention = layers.BFTAttention(num_heads=1, normalization=None)
attention.build((None, 1, D), (None, 1, D))
for dense in (attention.value_dense, attention.output_dense):
    dense.kernel.assign(np.eye(D))


def attend(state, log_precision, y, y_log_precision):
    """Observe: cross attention to one measurement."""
    return attention(
        state,
        log_precision,
        context=y - state,
        context_log_precision=y_log_precision,
    )


check(
    "BFTAttention, one key",
    *run(deep_filter(attend), y1, r1),
    *exact_filter(y1, r1, noise, prior_variance, a),
)

"""
Observe, Update and Predict together are the exact Kalman filter, through ten
layers.

## 4. Many keys

### Known precisions: the weights

Let several sensors measure one quantity at the same time. The best linear
estimate weighs each by its precision. Kriging weights do so by themselves: with
queries that prefer no key (a query kernel of zero), the softmax over the keys'
log-precisions *is* `precision / sum of precisions`.
"""

SENSORS = 8
sensor_noise = np.exp(rng.uniform(-2.0, 2.0, (SERIES, SENSORS, 1)))
level = rng.normal(size=(SERIES, 1, D))
readings = level + rng.normal(size=(SERIES, SENSORS, D)) * sensor_noise**0.5

attention.query_dense.kernel.assign(np.zeros((D, D)))
query = np.zeros((SERIES, 1, D), "float32")


def fuse(readings, log_precision):
    """The estimate and its log-precision, `(series, channels)`."""
    estimate, observed = attention(
        query,
        np.zeros_like(query),
        context=readings.astype("float32"),
        context_log_precision=log_precision.astype("float32"),
    )
    return (ops.convert_to_numpy(x)[:, 0] for x in (estimate, observed))


best_estimate = np.average(
    readings, axis=1, weights=np.broadcast_to(1 / sensor_noise, readings.shape)
)
estimate, _ = fuse(readings, -np.log(sensor_noise))
plain, _ = fuse(readings, np.zeros_like(sensor_noise))
print(f"off the best estimate by {np.abs(estimate - best_estimate).max():.1e}")
print(
    f"mean squared error, kriging: {np.mean((estimate - level[:, 0]) ** 2):.3f}"
)
print(f"... uniform weights:         {np.mean((plain - level[:, 0]) ** 2):.3f}")
assert np.abs(estimate - best_estimate).max() < TOLERANCE

"""
### Estimated precision: the posterior

How precise is such an estimate? The layer does not add up the precisions that
it was told: what a token claims of itself may be wrong, and in a Transformer
keys may be of different things. It takes them as a prior and lets the spread of
the values speak. The model behind it is that the $n$ values are

$$v_j \\sim \\mathcal N(\\mu, \\sigma^2), \\qquad
p(\\mu) \\propto 1, \\qquad
\\sigma^2 \\sim \\text{Scaled-Inv-}\\chi^2(\\nu_0 = 1,\\ 1 / p),$$

and the precision of their mean is $n\\,E[\\sigma^{-2} \\mid v]$. With equal
weights the posterior can be had by brute force, on a grid over $\\mu$ and
$\\log \\sigma^2$. One head pools its channels, so this check uses
`variance="channel"`, which keeps them apart.
"""

attention = layers.BFTAttention(
    num_heads=1, normalization=None, variance="channel"
)
attention.build((None, 1, D), (None, 1, D))
attention.query_dense.kernel.assign(np.zeros((D, D)))
for dense in (attention.value_dense, attention.output_dense):
    dense.kernel.assign(np.eye(D))


def brute_force(values, p):
    """`n E[1 / variance]` given `values`, by a sum over a grid."""
    n = len(values)
    log_variance = np.linspace(-12.0, 16.0, 300)[:, None]
    # The mean's posterior is narrow or wide with the variance: so is the grid.
    offset = np.linspace(-8.0, 8.0, 41)
    mean = values.mean() + offset * np.exp(log_variance / 2) / n**0.5
    squares = sum((value - mean) ** 2 for value in values)
    log_density = (
        # The prior of log sigma^2 at one degree of freedom, ...
        -0.5 * (log_variance + np.exp(-log_variance) / p)
        # ... the likelihood, and the width of a cell of the grid.
        - 0.5 * (n * log_variance + np.exp(-log_variance) * squares)
        + 0.5 * log_variance
    )
    weights = np.exp(log_density - log_density.max())
    return n * np.sum(weights * np.exp(-log_variance)) / np.sum(weights)


p = 2.0
for n in (1, 2, 4, 8):
    # The same shape for every n, as shapes are what takes long to compile.
    claimed = np.full((SERIES, SENSORS, 1), -1.0e30)
    claimed[:, :n] = np.log(p)
    _, observed = fuse(readings, claimed)
    expected = np.array(
        [
            [brute_force(readings[s, :n, d], p) for d in range(D)]
            for s in range(5)
        ]
    )
    error = np.abs(np.exp(observed[:5]) / expected - 1.0).max()
    print(
        f"{n} equal keys: precision {np.exp(observed).min():6.2f} to "
        f"{np.exp(observed).max():6.2f}, off the posterior by {error:.1e}"
    )
    assert error < 1e-3

"""
With one key the observation is exactly as precise as the key claims, and the
more keys agree, the more precise it gets. That is how the gain comes to follow
the length and the agreement of what a token sees.

## What this does not show

A trained layer chooses its weights by content, its values come through a norm
and a kernel, and its network is not linear. There the filter is an
approximation: weights that differ are taken for an effective sample size
$n = 1 / \\sum_j w_j^2$, precision passes through the diagonal of the Jacobian
only, and channels count as independent. *How the mathematics was chosen* shows
how good some of these approximations are.
"""
