"""Small random Llamas, made and run with transformers."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import torch
import transformers
from keras import ops

from keras_bft.models import BFTLlamaCausalLM
from tests.layers.layer_checks import numpy

VOCABULARY = 96
# The shape that most tests use, as JAX compiles for each new one.
B, T = 3, 12

# Of TinyLlama's shape family, and what else `config.json` can say.
KINDS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "biases": {"attention_bias": True, "head_dim": 16},
    "linear": {
        "rope_parameters": {
            "rope_type": "linear",
            "factor": 4.0,
            "rope_theta": 10000.0,
        }
    },
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    # With a tokenizer of `write_byte_level`.
    "text": {"vocab_size": 600, "eos_token_id": 2, "bos_token_id": 1},
}


@functools.cache
def transformers_llama(kind: str = "grouped") -> tuple[Any, Path]:
    """A random Llama, and the folder it is saved in."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            # No token ends a generation.
            "bos_token_id": None,
            "eos_token_id": None,
            **KINDS[kind],
        }
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            if "embed" in name:
                # Small enough that the epsilon of the norms counts.
                weight.copy_(0.02 * noise)
            elif "norm" in name:
                weight.copy_(1.0 + 0.2 * noise)
            elif "bias" in name:
                weight.copy_(0.3 * noise)
            else:
                weight.copy_(noise / weight.shape[1] ** 0.5)
    if config.tie_word_embeddings:
        model.tie_weights()
    folder = tempfile.TemporaryDirectory(prefix="llama-")
    # It goes with the model that the cache keeps.
    model.folder = folder
    model.save_pretrained(folder.name)
    return model, Path(folder.name)


def make_lm(kind: str = "grouped", **options: Any) -> Any:
    """The same model here, without a tokenizer."""
    folder = transformers_llama(kind)[1]
    return BFTLlamaCausalLM.from_preset(folder, preprocessor=None, **options)


def make_filter(seed: int = 0, **options: Any) -> Any:
    """A model at full strength whose precision weights differ by token."""
    # The prior's hidden layer is drawn.
    keras.utils.set_random_seed(seed)
    lm = make_lm(**{"strength": 1.0, **options})
    rng = np.random.default_rng(seed)
    for layer in lm.backbone.transformer_layers:
        noise = layer.feed_forward.log_process_noise
        noise.assign(rng.normal(-4.0, 1.0, noise.shape))
    output = lm.backbone.prior.output_dense
    output.kernel.assign(rng.normal(0.0, 30.0, output.kernel.shape))
    return lm


def make_changed(**options: Any) -> Any:
    """A model with precision weights that no argument would give again."""
    lm = make_filter(**options)
    for index, layer in enumerate(lm.backbone.transformer_layers):
        layer.strength.assign(0.3 + 0.4 * index)
    return lm


def make_ids(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(1, VOCABULARY, shape).astype("int32")


def set_strength(lm: Any, strength: float) -> None:
    for layer in lm.backbone.transformer_layers:
        layer.strength.assign(strength)


def inputs_of(token_ids: Any, padding_mask: Any = None) -> dict[str, Any]:
    ids = np.asarray(token_ids, "int32")
    mask = np.ones_like(ids) if padding_mask is None else padding_mask
    return {
        "token_ids": ops.convert_to_tensor(ids),
        "padding_mask": ops.convert_to_tensor(np.asarray(mask, "int32")),
    }


def logits_of(lm: Any, token_ids: Any, padding_mask: Any = None) -> np.ndarray:
    return numpy(lm(inputs_of(token_ids, padding_mask)))


def transformers_logits(kind: str, token_ids: Any) -> np.ndarray:
    model = transformers_llama(kind)[0]
    with torch.no_grad():
        ids = torch.tensor(np.asarray(token_ids), dtype=torch.long)
        logits: np.ndarray = model(ids).logits.double().numpy()
    return logits
