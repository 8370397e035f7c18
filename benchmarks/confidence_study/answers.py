"""What a method says of each user's list, and what came of it."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np

from keras_bft.training import replacing

# Users scored at a time: the larger, the fewer sizes of a rest to compile.
SCORED = 512


@dataclasses.dataclass(frozen=True)
class Users:
    """Held-out users: what they did, and what they did next."""

    histories: list[np.ndarray]
    targets: np.ndarray

    def where(self, chosen: np.ndarray) -> "Users":
        """Some of the users."""
        return Users([self.histories[n] for n in chosen], self.targets[chosen])


@dataclasses.dataclass(frozen=True)
class Answers:
    """A confidence for each user, and whether the list held the next item."""

    confidence: np.ndarray
    hits: np.ndarray


# Of a batch of users, by the name of the method: confidences and hits.
Method = Callable[[Users], Mapping[str, tuple[np.ndarray, np.ndarray]]]


def log_weights(
    scores: np.ndarray, histories: list[np.ndarray], filter_seen: bool
) -> np.ndarray:
    """Scores in float64, with minus infinity for what is not recommended."""
    scores = scores.astype("float64")
    scores[:, 0] = -np.inf
    if filter_seen:
        for row, history in zip(scores, histories, strict=True):
            row[history] = -np.inf
    return scores


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities of the items, each row's sum one."""
    logits = logits / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def best(probabilities: np.ndarray, k: int) -> np.ndarray:
    """The list: the `k` most probable items of each row, in any order."""
    return np.argpartition(-probabilities, k - 1, axis=1)[:, :k]


def judge(
    probabilities: np.ndarray, ids: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probability of each list, and whether it holds the target."""
    chosen = np.take_along_axis(probabilities, ids, axis=1)
    # A list longer than what is left is filled with what is not in it.
    hits = (ids == targets[:, None]) & (chosen > 0)
    return np.minimum(chosen.sum(axis=1), 1.0), hits.any(axis=1)


def answer(users: Users, method: Method, label: str) -> dict[str, Answers]:
    """Asks a method about all users, those of similar length together."""
    order = np.argsort([len(h) for h in users.histories], kind="stable")
    progress = keras.utils.Progbar(len(order), unit_name="user")
    print(label, flush=True)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for start in range(0, len(order), SCORED):
        chosen = order[start : start + SCORED]
        for name, found in method(users.where(chosen)).items():
            parts.setdefault(name, []).append(found)
        progress.update(start + len(chosen))
    back = np.argsort(order)
    return {
        name: Answers(
            *(np.concatenate(x)[back] for x in zip(*found, strict=True))
        )
        for name, found in parts.items()
    }


def save(answers: Mapping[str, Answers], path: Path) -> None:
    """Writes answers of several methods into one file."""
    arrays = {}
    for name, given in answers.items():
        arrays[f"{name}/confidence"] = given.confidence
        arrays[f"{name}/hits"] = given.hits
    with replacing(path) as part:
        np.savez_compressed(part, **arrays)


def load(path: Path) -> dict[str, Answers]:
    """Reads what `save` wrote."""
    with np.load(path) as stored:
        names = dict.fromkeys(key.rpartition("/")[0] for key in stored)
        return {
            name: Answers(stored[f"{name}/confidence"], stored[f"{name}/hits"])
            for name in names
        }
