"""Ways to say how sure a recommendation is."""

from typing import Any

import keras
import numpy as np
from keras import ops

from confidence_study.answers import SCORED
from confidence_study.answers import Method
from confidence_study.answers import Users
from confidence_study.answers import best
from confidence_study.answers import judge
from confidence_study.answers import log_weights
from confidence_study.answers import softmax
from keras_bft.data import pad_sequences
from keras_bft.evaluation import fit_temperature
from keras_bft.models import SequentialRecommender

# Of the variance of a logit, by which it may be misjudged.
FACTORS = 10.0 ** np.arange(6)


def scores_of(
    model: SequentialRecommender,
    users: Users,
    filter_seen: bool,
    predictive: str = "mean",
) -> np.ndarray:
    """Logits of what can be recommended, as `log_weights` gives them."""
    scores = model.score(users.histories, SCORED, predictive=predictive)
    return log_weights(scores, users.histories, filter_seen)


def temperature(logits: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """The best temperature, and minus the log-likelihood it gives.

    Users whose target is left out, as their history holds it, say nothing.
    """
    held = np.isfinite(logits[np.arange(len(logits)), targets])
    logits, targets = logits[held], targets[held]
    scale = fit_temperature(logits, targets)
    chosen = softmax(logits, scale)[np.arange(len(logits)), targets]
    return scale, -float(np.log(chosen).mean())


def relative_spread(mean: np.ndarray, mean_field: np.ndarray) -> np.ndarray:
    """`pi / 8` of the variance of each logit, from what it does to it."""
    known = np.isfinite(mean) & (mean_field != 0)
    ratio = np.divide(mean, mean_field, where=known, out=np.ones_like(mean))
    return np.maximum(np.square(ratio) - 1.0, 0.0)


def fit_factor(
    mean: np.ndarray, mean_field: np.ndarray, targets: np.ndarray
) -> tuple[float, float]:
    """The factor of the variances and the temperature that fit best."""
    spread = relative_spread(mean, mean_field)
    found = []
    for factor in FACTORS:
        logits = mean / np.sqrt(1.0 + factor * spread)
        scale, loss = temperature(logits, targets)
        found.append((loss, float(factor), scale))
    return min(found)[1:]


def of_filter(
    model: SequentialRecommender,
    validation: Users,
    k: int,
    filter_seen: bool,
) -> Method:
    """Methods of the filter; all but the last judge the same lists."""

    def both(users: Users) -> tuple[np.ndarray, np.ndarray]:
        return (
            scores_of(model, users, filter_seen),
            scores_of(model, users, filter_seen, "mean_field"),
        )

    logits = both(validation)
    scale, _ = temperature(logits[0], validation.targets)
    factor, scale_of_field = fit_factor(*logits, validation.targets)
    print(
        f"Temperature {scale:.4g}; of the mean field {scale_of_field:.4g}, "
        f"with variances times {factor:g}."
    )

    def method(users: Users) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        mean, mean_field = both(users)
        plain, field = softmax(mean), softmax(mean_field)
        spread = factor * relative_spread(mean, mean_field)
        fitted = softmax(mean / np.sqrt(1.0 + spread), scale_of_field)
        ids, targets = best(plain, k), users.targets
        sure = model.recommend(
            users.histories, 1, batch_size=SCORED, return_confidence=True
        )[2]
        found = {
            "mean field": judge(field, ids, targets),
            "mean field, fitted": judge(fitted, ids, targets),
            "list probability": judge(plain, ids, targets),
            "temperature": judge(softmax(mean, scale), ids, targets),
        }
        hits = found["list probability"][1]
        found["max probability"] = plain.max(axis=1), hits
        found["precision alone"] = sure.log_precision, hits
        found["ranked by mean field"] = judge(field, best(field, k), targets)
        return {f"BFT, {name}": value for name, value in found.items()}

    return method


class _WithDropout(keras.Model):
    """State after the last item, with dropout, compiled."""

    def __init__(self, recommender: SequentialRecommender) -> None:
        super().__init__(name="with_dropout")
        self.recommender = recommender
        self.built = True

    def call(self, inputs: dict[str, Any]) -> Any:
        states = self.recommender(inputs["items"], training=True)
        last = inputs["last"][:, None, None]
        return ops.take_along_axis(states, last, axis=1)[:, 0]


def of_plain(
    model: SequentialRecommender,
    validation: Users,
    k: int,
    filter_seen: bool,
    samples: int,
) -> Method:
    """Methods of one plain model; MC dropout has lists of its own."""
    logits = scores_of(model, validation, filter_seen)
    scale, _ = temperature(logits, validation.targets)
    print(f"Temperature {scale:.4g}.")
    with_dropout = _WithDropout(model)
    table = ops.convert_to_numpy(model.item_table()).astype("float32").T

    def dropped(users: Users) -> np.ndarray:
        items = np.zeros((SCORED, model.max_length), "int32")
        items[: len(users.targets)] = pad_sequences(
            users.histories, model.max_length
        )
        last = np.maximum((items > 0).sum(axis=1) - 1, 0).astype("int32")
        inputs = {"items": items, "last": last}
        total = 0.0
        for _ in range(samples):
            states = with_dropout.predict_on_batch(inputs)
            scores = states[: len(users.targets)] @ table
            total = total + softmax(
                log_weights(scores, users.histories, filter_seen)
            )
        return total / samples

    def method(users: Users) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        logits = scores_of(model, users, filter_seen)
        plain = softmax(logits)
        ids = best(plain, k)
        found = {
            "list probability": judge(plain, ids, users.targets),
            "temperature": judge(softmax(logits, scale), ids, users.targets),
        }
        hits = found["list probability"][1]
        found["max probability"] = plain.max(axis=1), hits
        mean = dropped(users)
        found["MC dropout"] = judge(mean, best(mean, k), users.targets)
        return {f"plain, {name}": value for name, value in found.items()}

    return method


def of_ensemble(
    members: list[SequentialRecommender], k: int, filter_seen: bool
) -> Method:
    """The mean probability of several plain models, which ranks as well."""

    def method(users: Users) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        total = 0.0
        for member in members:
            total = total + softmax(scores_of(member, users, filter_seen))
        mean = total / len(members)
        judged = judge(mean, best(mean, k), users.targets)
        return {f"plain, ensemble of {len(members)}": judged}

    return method
