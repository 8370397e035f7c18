"""
Title: How the mathematics was chosen
Author: the keras_bft developers
Date created: 2026/11/30
Description: What is the paper's, what was derived, and why, in numbers.
"""

"""
## Paper and library

The [paper](https://arxiv.org/abs/2605.18832) says what a layer does. Of some
estimators its abstract and summary do not give the exact form; those of this
library were derived for it, and docstrings say so of each formula.

| part | from the paper | derived for this library |
|---|---|---|
| Observe | kriging weights | the observation's precision, its units; HSTU |
| Update | the gain; precisions add | the strength |
| Predict | diagonal Jacobian, process noise | closed form; calibration |
| start | a prior precision for each token | where it starts |

This guide shows, with numbers small enough to check, why the derived parts are
as they are. It needs no training.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_bft import layers
from keras_bft.ops import kriging_statistics
from keras_bft.ops import observation_log_precision
from keras_bft.ops import sandwich_observation

rng = np.random.default_rng(0)
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"


def finished(axes, x, y):
    """Labels axes and removes what is not needed."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")


"""
## 1. How precise is a weighted mean?

Attention returns the mean of the values that a query sees. If $n$ values have
the variance $\\sigma^2$, their mean has the precision $n / \\sigma^2$; but the
variance is not known. With the residual variance $r_2$ around the mean, three
answers are

- plug-in, $n / r_2$. It is too sure: $r_2$ is on average $(n - 1) / n$ of the
  variance. With one value $r_2 = 0$ and the precision is infinite.
- REML, $(n - 1) / r_2$. It takes the lost degree of freedom into account, is
  still infinite on average for $n \\le 3$, and undefined for one value.
- the posterior mean precision, with a prior that is worth $\\nu_0 = 1$ value
  and expects the precision $p$ that the keys claim:

$$\\lambda_{obs} = \\frac{n (\\nu_0 + n - 1)}{\\nu_0 / p + n r_2}.$$

The gain reads the logarithm of a precision. The table has the root mean squared
error of that logarithm, for values whose variances are drawn from that prior.
"""

DRAWS = 20000
true_variance = 1.0 / rng.chisquare(1, DRAWS)  # Scaled-inverse-chi-squared.
values = rng.normal(size=(DRAWS, 32)) * true_variance[:, None] ** 0.5


def posterior_precision(n, r2):
    """What the library states for every draw, with a prior of one."""
    shape = (DRAWS, 1, 1, 1)
    log_precision = observation_log_precision(
        r2.reshape(shape), np.full(shape, n), np.zeros(shape)
    )
    return np.exp(ops.convert_to_numpy(log_precision).reshape(-1))


print("   n      plug-in         REML    posterior")
for n in (1, 2, 3, 4, 8, 32):
    r2 = values[:, :n].var(axis=1)
    truth = n / true_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        stated = (n / r2, (n - 1) / r2, posterior_precision(n, r2))
        errors = [
            np.mean(np.log(precision / truth) ** 2) ** 0.5
            for precision in stated
        ]
    print(f"{n:4} " + " ".join(f"{error:12.3f}" for error in errors))

"""
And what is stated comes true. Among the sets of three values for which a
precision of $x$ was stated, the true precision is $x$ on average for the
posterior, and far less for the others where they are sure.
"""

n = 3
r2 = values[:, :n].var(axis=1)
truth = n / true_variance
figure, axes = plt.subplots(figsize=(5.4, 4), layout="constrained")
for name, precision, color, marker in (
    ("plug-in", n / r2, RED, "s"),
    ("REML", (n - 1) / r2, GREEN, "^"),
    ("posterior", posterior_precision(n, r2), BLUE, "o"),
):
    bins = np.array_split(np.argsort(precision), 16)
    stated = [precision[part].mean() for part in bins]
    came = [truth[part].mean() for part in bins]
    axes.loglog(stated, came, color=color, marker=marker, label=name)
ends = np.array([1e-2, 1e3])
axes.loglog(ends, ends, color="0.6", linestyle="--", linewidth=1)
finished(axes, "stated precision", "mean of the true precision")
plt.show()

"""
It is a choice all the same. For the squared error of the updated state the
posterior mean of the *variance* would be the better number; it is infinite up
to $n = 2$, where attention often is. With more values all of these agree.

The residual variance itself needs care. $\\sum w v^2 - e^2$ loses its digits
where the mean is much larger than the spread, so the value of one key is
subtracted first:
"""

far = (1000.0 + rng.normal(size=(1, 64, 1, 8))).astype("float32")
equal = np.full((1, 1, 1, 64), 1 / 64, "float32")
expected = far.astype("float64").var(axis=1).reshape(-1)
naive = (far**2).mean(axis=1) - far.mean(axis=1) ** 2
careful = kriging_statistics(equal, far).residual_variance
careful = ops.convert_to_numpy(careful)
for name, r2 in (("as written", naive), ("one key subtracted", careful)):
    error = np.abs(r2.reshape(-1) / expected - 1.0).max()
    print(f"relative error of r2, {name:<19} {error:.0e}")

"""
## 2. Whose units?

The precision of a state is in the units of the residual stream. A value is the
state through a norm and a kernel, so its units are others. The delta method
carries the precision across (`carry_units=True`, the default):

$$\\log \\pi_j = \\bar\\ell_j + 2 \\log s_j - \\log g, \\qquad
g = \\text{mean}_c \\textstyle\\sum_i (\\gamma_i W^V_{ic})^2,$$

with the key's standard deviation $s_j$. The test is to measure the stream in
other units: states times $c$, precisions times $c^{-2}$. Behind the norm
nothing has changed, so the observation has to be as precise as before.
"""

state = rng.normal(size=(2, 12, 16)).astype("float32")
log_precision = rng.normal(size=(2, 12, 1)).astype("float32")
print("change of the observation's log-precision, largest over tokens")
for carry_units in (True, False):
    attention = layers.BFTAttention(2, carry_units=carry_units, seed=0)
    _, before = attention(state, log_precision)
    for c in (0.1, 10.0):
        _, after = attention(c * state, log_precision - 2.0 * np.log(c))
        change = ops.convert_to_numpy(after) - ops.convert_to_numpy(before)
        print(
            f"carry_units={carry_units!s:<5} c={c:<4} "
            f"{np.abs(change).max():.5f}"
        )

"""
Without the carrying, the gain would compare two numbers in different units, and
depend on the scale that the stream happens to have. Deep in a pretrained
decoder that scale is far from one.

## 3. From a standard layer to a filter

A checkpoint was trained with a gain of one. To start there, the strength $s$
makes the state's own information count $s$ times (a power prior), in the gain
and in the kriging weights:

$$K = \\frac{\\lambda_{obs}}{s \\lambda + \\lambda_{obs}}, \\qquad
w_{tj} \\propto \\alpha_{tj} \\lambda_j^s.$$

At $s = 0$ this is the standard layer. Could one not give every token a very low
precision instead? No. The observation is made of these tokens and becomes as
uncertain as they are, so the gain then depends on the effective sample size
alone and does not reach one; and the kriging weights, which compare tokens with
each other, stay as they were.
"""


def updated(strength, log_precision):
    """The state after one Observe and Update, and the mean gain."""
    keras.utils.set_random_seed(0)
    attention = layers.BFTAttention(2, strength=strength)
    innovation, observed = attention(state, log_precision)
    new, _ = layers.KalmanResidual(strength)(
        state, log_precision, innovation, observed
    )
    new, innovation = map(ops.convert_to_numpy, (new, innovation))
    return new, np.median((new - state) / innovation)


standard, _ = updated(0.0, log_precision)
print("                  off the standard layer   median gain")
for name, strength, lower in (
    ("strength 1", 1.0, 0.0),
    ("strength 0.1", 0.1, 0.0),
    ("strength 0.01", 0.01, 0.0),
    ("strength 0", 0.0, 0.0),
    ("precision / 1e6", 1.0, np.log(1e6)),
):
    new, gain = updated(strength, log_precision - lower)
    print(f"{name:<17} {np.abs(new - standard).max():22.3f} {gain:13.3f}")

"""
## 4. Attention without softmax

The weights of HSTU, `silu(q k) / N`, do not sum to one, so what they give is no
weighted mean and has no $n$ and $r_2$ in the sense above. It is a sum
$\\sum_j a_j v_j$ whose variance, with values of unequal variances, is
$\\sum_j a_j^2 \\sigma_j^2$. The heteroscedasticity-consistent sandwich puts
the squared residual of each value in the place of its variance, and adds what
the keys claim of themselves as one value among all that are visible:

$$\\sum_j a_j^2 \\left((v_j - m)^2 + \\frac{1}{n_{vis}\\, \\pi_j}\\right).$$

A pooled variance, $\\sum_j a_j^2$ times the variance of all values, is right
only if the weights have nothing to do with the noise. Here keys with larger
weights are noisier, or less so, by an exponent; the variance of the sum over
many draws is the truth.
"""

KEYS, REPEATS = 40, 3000
weight = np.linspace(0.2, 2.0, KEYS) / KEYS
weights = np.broadcast_to(weight, (REPEATS, 1, 1, KEYS)).astype("float32")
exponents = (-2, -1, 0, 1, 2)
ratios = {"sandwich": [], "pooled": []}
for exponent in exponents:
    stddev = (weight * KEYS) ** exponent
    drawn = rng.normal(size=(REPEATS, KEYS, 1, 1)) * stddev[:, None, None]
    drawn = drawn.astype("float32")
    true = np.sum(weight**2 * stddev**2)
    claimed = np.log(np.broadcast_to(1e4, (REPEATS, KEYS, 1)))
    sandwich = sandwich_observation(
        weights, drawn, value_log_precision=claimed.astype("float32")
    ).variance
    pooled = np.sum(weight**2) * drawn.var(axis=1, ddof=1)
    ratios["sandwich"].append(ops.convert_to_numpy(sandwich).mean() / true)
    ratios["pooled"].append(pooled.mean() / true)

figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
for (name, ratio), color, marker in zip(
    ratios.items(), (BLUE, RED), "os", strict=True
):
    axes.semilogy(exponents, ratio, color=color, marker=marker, label=name)
axes.axhline(1.0, color="0.6", linestyle="--", linewidth=1, label="exact")
axes.set_xticks(exponents)
finished(
    axes,
    "exponent p: standard deviation of a key's noise = weight^p",
    "estimated / true variance of the sum",
)
plt.show()
print("sandwich / true:", np.round(ratios["sandwich"], 3))
print("pooled / true:  ", np.round(ratios["pooled"], 3))

"""
## 5. Precision through a network

Predict needs the diagonal of the Jacobian of a feed-forward network. In closed
form it is one more matrix product, and for `f(h)` without a norm it is exact. A
norm in front adds entries off the diagonal of the order of `1 / D`, which are
left out. How much variance comes out, against 20,000 random states around one
point?
"""

for width in (8, 64):
    keras.utils.set_random_seed(0)
    predict = layers.PrecisionFeedForward(
        4 * width, jacobian="diagonal", initial_log_process_noise=None
    )
    centre = rng.normal(size=(1, 1, width))
    small = 0.01
    _, log_precision = predict(
        centre, np.full((1, 1, width), -2.0 * np.log(small))
    )
    around = centre + small * rng.normal(size=(1, 20000, width))
    drawn, _ = predict(around, np.zeros_like(around))
    ratio = np.exp(-ops.convert_to_numpy(log_precision))[0, 0]
    ratio = ratio / ops.convert_to_numpy(drawn)[0].var(axis=0)
    print(
        f"D = {width:<3} stated / true variance: "
        f"median {np.median(ratio):.2f}, "
        f"from {ratio.min():.2f} to {ratio.max():.2f}"
    )

"""
The diagonal leaves out what channels pass to each other, so it states too
little variance; the process noise, which is learned or, for a checkpoint,
calibrated from what the network is seen to add, stands for the rest.

## What decides in the end

These are properties of estimators. Whether a model ranks better or answers
better with them is a matter of data, and the README reports where it does and
where it does not.
"""
