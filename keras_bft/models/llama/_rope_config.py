"""The part of a Hugging Face configuration that is about RoPE."""

import sys
from typing import Any
from typing import NoReturn

from keras_bft.layers._rotary_frequencies import SCALINGS

_ABSENT = object()

# Numbers that each type has besides `rope_theta`, in the order of the result.
_NUMBERS: dict[str, tuple[str, ...]] = {"default": (), **SCALINGS}


def refuse(config: dict[str, Any], key: str, problem: str) -> NoReturn:
    """Raises a `ValueError` that names a key of a configuration.

    Args:
        config: The configuration.
        key: The key.
        problem: What it must be.
    """
    value = config.get(key, _ABSENT)
    shown = "no such key" if value is _ABSENT else f"{key:.80}={value!r:.200}"
    raise ValueError(
        f"In the configuration, `{key:.80}` {problem:.300}. Received: {shown}"
    )


def read_rope(config: dict[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """Returns `rope_theta` and `rope_scaling` of either style.

    Args:
        config: Content of `config.json`.

    Returns:
        The base, 10000 if none is given, and `None` or a dictionary with
        `type` and its numbers.

    Raises:
        ValueError: If the type of RoPE is not supported or lacks a number, or
            two keys contradict each other.
    """
    sources = [
        key
        for key in ("rope_parameters", "rope_scaling")
        if config.get(key) is not None
    ]
    if len(sources) == 2 and config[sources[0]] != config[sources[1]]:
        refuse(
            config,
            "rope_scaling",
            "must not contradict rope_parameters="
            f"{config['rope_parameters']!r:.200}",
        )
    _check_not_partial(config)
    rope = config[sources[0]] if sources else {}
    if not isinstance(rope, dict):
        refuse(config, sources[0], "must be null or an object")
    bases = [
        keys["rope_theta"]
        for keys in (rope, config)
        if keys.get("rope_theta") is not None
    ]
    if len(bases) == 2 and bases[0] != bases[1]:
        refuse(
            config,
            "rope_theta",
            f"must not contradict {sources[0]} with rope_theta={bases[0]!r}",
        )
    theta = bases[0] if bases else 10000.0
    if not is_positive(theta):
        refuse({"rope_theta": theta}, "rope_theta", "must be positive")
    return theta, _scaling(rope)


def write_rope(
    rope_theta: float, rope_scaling: dict[str, Any] | None
) -> dict[str, Any]:
    """Returns the keys that `read_rope` reads, in the older style.

    A transformers 4 ignores the newer style and takes the base to be 10000,
    while version 5 reads both.
    """
    written = None
    if rope_scaling is not None:
        written = {
            "rope_type" if key == "type" else key: value
            for key, value in rope_scaling.items()
        }
    return {"rope_theta": rope_theta, "rope_scaling": written}


def _scaling(rope: dict[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if rope.get("type") not in (None, kind):
        refuse(rope, "type", f"must not contradict rope_type={kind!r}")
    if not isinstance(kind, str) or kind not in _NUMBERS:
        refuse(
            {"rope_type": kind},
            "rope_type",
            f"must be one of {', '.join(_NUMBERS)}",
        )
    _check_not_partial(rope)
    numbers = _NUMBERS[kind]
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    for key, value in rope.items():
        if key not in known.union(numbers) and value is not None:
            refuse(rope, key, f"is not known for RoPE of type {kind!r}")
    for key in numbers:
        if not is_positive(rope.get(key)):
            refuse(rope, key, f"must be positive for RoPE of type {kind!r}")
    if kind == "default":
        return None
    if rope["factor"] < 1:
        refuse(rope, "factor", "must be at least 1")
    if kind == "llama3":
        if rope["low_freq_factor"] >= rope["high_freq_factor"]:
            refuse(
                rope,
                "low_freq_factor",
                f"must be below high_freq_factor={rope['high_freq_factor']}",
            )
        if type(rope["original_max_position_embeddings"]) is not int:
            refuse(
                rope, "original_max_position_embeddings", "must be an integer"
            )
    return {"type": kind, **{key: rope[key] for key in numbers}}


def _check_not_partial(config: dict[str, Any]) -> None:
    key = "partial_rotary_factor"
    if config.get(key) not in (None, 1):
        refuse(config, key, "must be 1: RoPE rotates whole heads")


def is_positive(value: Any) -> bool:
    """Whether a value is a positive number that a float can hold."""
    # `type`, because True is an `int` too.
    return type(value) in (int, float) and 0 < value <= sys.float_info.max
