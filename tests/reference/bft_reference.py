"""Brute-force float64 reference of the Bayesian Filtering Transformer maths.

Plain NumPy, explicit loops over queries and keys, no shortcut of the kind the
library uses (no expanded square, no log domain, no closed-form Jacobian). It
is slow on purpose: it is what the library's fast code is compared with.

Symbols follow design.md. Shapes: B batch, T sequence, H heads, C channels per
head, D = H * C model channels, F hidden width of the feed-forward network.
All precisions are inverse variances (lambda > 0), passed and returned as they
are, not as logarithms.
"""

import numpy as np


def softmax(x):
    z = np.exp(x - np.max(x))
    return z / z.sum()


def kriging_observation(
    query,
    key,
    value,
    precision,
    visible,
    value_precision=None,
    scale=None,
    strength=1.0,
):
    """Observe: precision-weighted softmax attention, one query at a time.

    Args:
        query, key, value: `(B, T, H, C)`, `(B, S, H, C)`, `(B, S, H, C)`.
        precision: `(B, S, D)` or `(B, S, 1)` prior precision of the keys.
        visible: `(B, T, S)` bool, True where query t may use key s.
        value_precision: `(B, S, H)` precision of each head's values in the
            values' own units, default the mean key precision.
        scale: logit scale, default `C ** -0.5`.
        strength: exponent of the keys' precision in the weights.

    Returns:
        dict of `estimate` `(B, T, H, C)`, `residual_variance` `(B, T, H, C)`,
        `effective_sample_size` `(B, T, H)`, `prior_precision` `(B, T, H)` and
        `weights` `(B, H, T, S)`. A query that sees no key gets estimate 0,
        residual variance 0, sample size 0 and prior precision 0.
    """
    B, T, H, C = query.shape
    S = key.shape[1]
    scale = C**-0.5 if scale is None else scale
    key_precision = precision.mean(axis=-1)
    if value_precision is None:
        value_precision = np.repeat(key_precision[..., None], H, axis=-1)
    out = {
        "estimate": np.zeros((B, T, H, C)),
        "residual_variance": np.zeros((B, T, H, C)),
        "effective_sample_size": np.zeros((B, T, H)),
        "prior_precision": np.zeros((B, T, H)),
        "weights": np.zeros((B, H, T, S)),
    }
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = np.flatnonzero(visible[b, t] & (key_precision[b] > 0))
                if len(seen) == 0:
                    continue
                logits = np.array(
                    [scale * query[b, t, h] @ key[b, s, h] for s in seen]
                )
                relevance = softmax(logits)
                w = relevance * key_precision[b, seen] ** strength
                w = w / w.sum()
                v = value[b, seen, h]
                estimate = sum(w[i] * v[i] for i in range(len(seen)))
                residual = sum(
                    w[i] * (v[i] - estimate) ** 2 for i in range(len(seen))
                )
                out["estimate"][b, t, h] = estimate
                out["residual_variance"][b, t, h] = residual
                out["effective_sample_size"][b, t, h] = 1.0 / np.sum(w**2)
                out["prior_precision"][b, t, h] = (
                    w @ value_precision[b, seen, h]
                )
                out["weights"][b, h, t, seen] = w
    return out


def reml_variance(residual_variance, effective_sample_size):
    """REML variance of one value: weighted residuals over n_eff - 1 degrees."""
    n = effective_sample_size
    return n * residual_variance / (n - 1.0)


def observation_precision(
    residual_variance, effective_sample_size, prior_precision, prior_dof=1.0
):
    """Posterior mean precision of the kriging estimate.

    The value variance has a scaled-inverse-chi-squared prior with `prior_dof`
    degrees of freedom and scale `1 / prior_precision`; the REML statistic
    brings `n_eff - 1` degrees. The posterior mean of the inverse variance is
    the inverse of the posterior scale; the estimate is a mean of n_eff values.
    """
    n = effective_sample_size
    if np.isscalar(n):
        n = np.asarray(n, dtype="float64")
    dof = n - 1.0
    sum_of_squares = n * residual_variance
    scale = (prior_dof / prior_precision + sum_of_squares) / (prior_dof + dof)
    return n / scale


def project_precision(value_precision, kernel):
    """Delta method through the linear output projection.

    Args:
        value_precision: `(B, T, H, C)` precision of each head channel.
        kernel: `(H, C, D)` output projection.

    Returns:
        `(B, T, D)` precision of each projected channel.
    """
    H, C, D = kernel.shape
    variance = np.zeros(value_precision.shape[:2] + (D,))
    for d in range(D):
        for h in range(H):
            for c in range(C):
                variance[..., d] += (
                    kernel[h, c, d] ** 2 / value_precision[..., h, c]
                )
    return 1.0 / variance


def sandwich_observation(
    weights, value, precision, visible, value_precision=None
):
    """Observe without normalised weights (HSTU): estimate and robust variance.

    Args:
        weights: `(B, H, T, S)` signed pointwise attention weights.
        value: `(B, S, H, C)`.
        precision: `(B, S, D)` or `(B, S, 1)`.
        visible: `(B, T, S)` bool.
        value_precision: `(B, S, H)`, default the mean key precision.

    Returns:
        dict of `estimate` and `variance`, both `(B, T, H, C)`. The weights are
        multiplied by the key's precision relative to the mean precision of
        the visible keys, so that uniform precision changes nothing. The
        variance is the heteroscedasticity-consistent sandwich
        `sum_s a_s^2 (v_s - m)^2` around the plain mean m of the visible
        values, plus the prior variance `sum_s a_s^2 / value_precision_s / n`
        that one pseudo-observation shares over n visible keys.
    """
    B, H, T, S = weights.shape
    C = value.shape[-1]
    key_precision = precision.mean(axis=-1)
    if value_precision is None:
        value_precision = np.repeat(key_precision[..., None], H, axis=-1)
    out = {
        "estimate": np.zeros((B, T, H, C)),
        "variance": np.zeros((B, T, H, C)),
    }
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = np.flatnonzero(visible[b, t] & (key_precision[b] > 0))
                n = len(seen)
                if n == 0:
                    continue
                relative = (
                    key_precision[b, seen] / key_precision[b, seen].mean()
                )
                a = weights[b, h, t, seen] * relative
                v = value[b, seen, h]
                m = v.mean(axis=0)
                out["estimate"][b, t, h] = sum(a[i] * v[i] for i in range(n))
                out["variance"][b, t, h] = sum(
                    a[i] ** 2
                    * (
                        (v[i] - m) ** 2
                        + 1.0 / (n * value_precision[b, seen[i], h])
                    )
                    for i in range(n)
                )
    return out


def value_precision(precision, spread, gamma, kernel):
    """Delta method through norm and value kernel: state to value units.

    Args:
        precision: `(B, S, D)` or `(B, S, 1)`.
        spread: `(B, S)` standard deviation (layer norm) or root mean square
            (RMS norm) by which the norm divides each key's state.
        gamma: `(D,)` scale of the norm.
        kernel: `(D, H, C)` value kernel.

    Returns:
        `(B, S, H)`: the key's mean precision, times its squared spread, over
        the head's mean squared gain.
    """
    H, C = kernel.shape[1:]
    out = np.zeros(precision.shape[:2] + (H,))
    for h in range(H):
        gains = [np.sum((gamma * kernel[:, h, c]) ** 2) for c in range(C)]
        out[..., h] = precision.mean(axis=-1) * spread**2 / np.mean(gains)
    return out


def kalman_update(
    state, precision, innovation, observation_precision, strength=1.0
):
    """Update: posterior state, posterior precision and gain.

    `strength` is a power prior: the state's information counts that often.
    """
    prior = strength * precision
    gain = observation_precision / (prior + observation_precision)
    return state + gain * innovation, prior + observation_precision, gain


def predict_precision(precision, jacobian, process_noise):
    """Predict: delta method through `h + f(h)` plus process noise Q."""
    return 1.0 / ((1.0 + jacobian) ** 2 / precision + process_noise)


def diagonal_jacobian(function, x, step=1e-5):
    """d f_i / d x_i by central differences, one channel at a time.

    `function` maps `(..., D)` to `(..., D)` and acts on each position alone.
    """
    jac = np.zeros_like(x)
    for i in range(x.shape[-1]):
        e = np.zeros(x.shape[-1])
        e[i] = step
        jac[..., i] = (function(x + e)[..., i] - function(x - e)[..., i]) / (
            2 * step
        )
    return jac
