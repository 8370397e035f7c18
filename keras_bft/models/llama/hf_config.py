"""Configurations of Llama models, as Hugging Face writes them."""

import json
import os
from pathlib import Path
from typing import Any

from keras_bft.models.llama._checkpoint_files import read_settings
from keras_bft.models.llama._rope_config import is_positive
from keras_bft.models.llama._rope_config import read_rope
from keras_bft.models.llama._rope_config import refuse
from keras_bft.models.llama._rope_config import write_rope

_DTYPES = ("float32", "float16", "bfloat16", "float64")

# Arguments of the backbone that are one positive integer of the file.
_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_query_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
}


def read_llama_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads `config.json` into the arguments of `BFTLlamaBackbone`.

    Both styles are read: `rope_theta` with `rope_scaling`, as transformers 4
    writes it, and `rope_parameters`, as transformers 5 does. What would change
    the model's output and is not supported is refused. A Mistral is a Llama if
    its `sliding_window` is null.

    Args:
        folder: Folder of the checkpoint.

    Returns:
        `vocabulary_size`, `num_layers`, `num_query_heads`,
        `num_key_value_heads`, `hidden_dim`, `intermediate_dim`, `head_dim`
        (`None` if the file leaves it out), `layer_norm_epsilon`,
        `rope_theta`, `rope_scaling` (`None`, or a dictionary with `type`
        `"linear"` or `"llama3"` and its numbers), `tie_word_embeddings`,
        `use_bias` and `max_position_embeddings`.

    Raises:
        ValueError: If the file is missing or malformed, or describes a model
            that is not supported. The error names the key and its value.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(
            "The folder of a checkpoint must have a config.json. Received: "
            f"folder={str(folder)!r}"
        )
    try:
        return _to_arguments(read_settings(path))
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{error}, file={str(path)!r}") from error


def write_llama_config(
    folder: str | os.PathLike[str],
    arguments: dict[str, Any],
    dtype: str,
    extra: dict[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Writes the `config.json` from which transformers builds the same model.

    It is in the style of transformers 4, which version 5 reads as well.

    Args:
        folder: Folder of the checkpoint. It is made where it does not exist.
        arguments: All that `read_llama_config` returns.
        dtype: Dtype of the weights: `"float32"`, `"float16"`, `"bfloat16"` or
            `"float64"`.
        extra: Further keys, such as `bos_token_id` and `eos_token_id`, which
            transformers otherwise takes to be 1 and 2. Defaults to none.
        overwrite: Whether a `config.json` that is there is replaced. Defaults
            to `False`.

    Returns:
        Path of the file.

    Raises:
        FileExistsError: If there is one and `overwrite` is `False`.
        ValueError: If the arguments are not those of a Llama, or `extra` has a
            key that follows from them.
    """
    if dtype not in _DTYPES:
        raise ValueError(
            f"`dtype` must be one of {', '.join(_DTYPES)}. Received: "
            f"dtype={dtype!r}"
        )
    extra = extra or {}
    config = _from_arguments(arguments) | {"torch_dtype": dtype}
    # The keys of transformers 5 would win over those that stand here.
    taken = set(config) | {"dtype", "head_dim", "rope_parameters"}
    if clash := sorted(taken & set(extra)):
        raise ValueError(
            f"`extra` must not have keys that follow from the other arguments. "
            f"Received: extra with {clash}"
        )
    # Other keys, such as those of quantization, change the model as well.
    _to_arguments(config | extra)
    path = Path(folder) / "config.json"
    if path.exists() and not overwrite:
        raise FileExistsError(
            "The folder already has a config.json. Give another one, or "
            f"`overwrite=True` to replace it. Received: folder={str(folder)!r}"
        )
    text = json.dumps(config | extra, indent=2, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(".part-config.json")
    part.write_text(text + "\n", encoding="utf-8")
    return part.replace(path)


def _to_arguments(config: dict[str, Any]) -> dict[str, Any]:
    _check_architecture(config)
    arguments: dict[str, Any] = {
        name: _size(config, key) for name, key in _SIZES.items()
    }
    heads, hidden = arguments["num_query_heads"], arguments["hidden_dim"]
    if hidden % heads:
        refuse(config, "hidden_size", f"must be a multiple of {heads} heads")
    key = "num_key_value_heads"
    # Where it is missing, a Mistral has 8 of them and a Llama one a query.
    if config.get(key) is None and config["model_type"] == "llama":
        arguments[key] = heads
    else:
        arguments[key] = _size(config, key)
    if heads % arguments[key]:
        refuse(config, key, f"must divide num_attention_heads={heads}")
    arguments["head_dim"] = None
    if config.get("head_dim") is not None:
        arguments["head_dim"] = _size(config, "head_dim")
    if (arguments["head_dim"] or hidden // heads) % 2:
        name = "hidden_size" if config.get("head_dim") is None else "head_dim"
        refuse(config, name, "must make heads of an even size, for RoPE")
    epsilon = config.get("rms_norm_eps", 1e-6)
    if not is_positive(epsilon):
        refuse(config, "rms_norm_eps", "must be a positive number")
    arguments["layer_norm_epsilon"] = epsilon
    arguments["rope_theta"], arguments["rope_scaling"] = read_rope(config)
    for name, key in (
        ("tie_word_embeddings", "tie_word_embeddings"),
        ("use_bias", "attention_bias"),
    ):
        arguments[name] = _flag(config, key)
    return arguments


def _check_architecture(config: dict[str, Any]) -> None:
    if config.get("model_type") not in ("llama", "mistral"):
        refuse(config, "model_type", "must be 'llama' (or 'mistral')")
    # A Mistral whose file leaves it out has a window of 4096.
    if config["model_type"] == "mistral" and (
        config.get("sliding_window", 4096) is not None
    ):
        refuse(config, "sliding_window", "must be null in a 'mistral'")
    if config.get("hidden_act", "silu") != "silu":
        refuse(config, "hidden_act", "must be 'silu'")
    if _flag(config, "mlp_bias"):
        refuse(config, "mlp_bias", "must be false")
    if config.get("quantization_config") is not None:
        refuse(
            config,
            "quantization_config",
            "must be absent: quantized weights are not supported",
        )


def _from_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    others = {
        "num_key_value_heads": "num_key_value_heads",
        "layer_norm_epsilon": "rms_norm_eps",
        "tie_word_embeddings": "tie_word_embeddings",
        "use_bias": "attention_bias",
    }
    names = {*_SIZES, *others, "head_dim", "rope_theta", "rope_scaling"}
    if wrong := sorted(names ^ set(arguments)):
        raise ValueError(
            f"`arguments` must have the keys {sorted(names)}. Received: "
            f"{wrong} missing or not among them"
        )
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "mlp_bias": False,
    }
    for name, key in (_SIZES | others).items():
        config[key] = arguments[name]
    if arguments["head_dim"] is not None:
        config["head_dim"] = arguments["head_dim"]
    config |= write_rope(arguments["rope_theta"], arguments["rope_scaling"])
    # What the reader refuses, or reads as something else, is not written.
    if (reread := _to_arguments(config)) != arguments:
        changed = {key for key in names if reread[key] != arguments[key]}
        raise ValueError(
            "`arguments` must be those that `read_llama_config` returns. "
            f"Received: { {key: arguments[key] for key in sorted(changed)} }"
        )
    return config


def _size(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or not 1 <= value < 2**31:
        refuse(config, key, "must be a positive integer below 2^31")
    return value


def _flag(config: dict[str, Any], key: str) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        refuse(config, key, "must be true or false")
    return value
