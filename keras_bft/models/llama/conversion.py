"""Weights between a Hugging Face folder and a backbone."""

import math
import mmap
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bft._extras import import_extra
from keras_bft.models.llama._checkpoint_files import read_settings
from keras_bft.models.llama._zero_initialization import zero_initialization
from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.checkpoint_folder import CheckpointFolder
from keras_bft.models.llama.checkpoint_folder import resolve_checkpoint
from keras_bft.models.llama.checkpoint_writer import TensorSource
from keras_bft.models.llama.checkpoint_writer import write_checkpoint
from keras_bft.models.llama.hf_config import read_llama_config
from keras_bft.models.llama.hf_config import write_llama_config
from keras_bft.models.llama.weight_names import WeightName
from keras_bft.models.llama.weight_names import check_config
from keras_bft.models.llama.weight_names import check_names
from keras_bft.models.llama.weight_names import weight_table

# Arguments of the backbone that a checkpoint's `config.json` does not decide.
_OURS = (
    "dropout",
    "bayesian",
    "gated_attention",
    "strength",
    "trainable_strength",
    "form",
    "precision",
    "prior_dim",
    "dtype",
)


def load_backbone(
    preset: str | Path, load_weights: bool, options: dict[str, Any]
) -> tuple[BFTLlamaBackbone, Path, dict[str, Any]] | None:
    """Builds a backbone from a Hugging Face folder.

    Args:
        preset: The folder, or `"hf://..."`.
        load_weights: Whether to read the weights.
        options: Arguments of the backbone, and others.

    Returns:
        The backbone, the folder and the other arguments, or `None` if the
        folder is a keras-hub preset.
    """
    if str(preset).startswith(("kaggle://", "modelscope://")):
        return None
    folder = resolve_checkpoint(preset)
    if _is_keras_preset(folder):
        return None
    ours = {name: options[name] for name in _OURS if name in options}
    rest = {key: value for key, value in options.items() if key not in ours}
    arguments = read_llama_config(folder) | ours
    if not load_weights:
        return BFTLlamaBackbone(**arguments), folder, rest
    checkpoint = CheckpointFolder(folder)
    check_config(checkpoint, arguments)
    with zero_initialization():
        backbone = BFTLlamaBackbone(**arguments)
    load_weights_from(backbone, checkpoint)
    return backbone, folder, rest


def _is_keras_preset(folder: Path) -> bool:
    try:
        return "registered_name" in read_settings(folder / "config.json")
    except (OSError, ValueError):
        # Whoever reads the checkpoint says what is wrong.
        return False


def _table(
    backbone: BFTLlamaBackbone,
) -> list[tuple[WeightName, keras.Variable]]:
    """Hugging Face's names beside the variables."""
    variables = {variable.path: variable for variable in backbone.variables}
    table = weight_table(
        backbone.num_layers, backbone.tie_word_embeddings, backbone.use_bias
    )
    # Keras keeps an untied head in the embedding layer.
    paths = {"output_embedding/kernel": "token_embedding/reverse_embeddings"}
    return [(row, variables[paths.get(row.ours, row.ours)]) for row in table]


def load_weights_from(
    backbone: BFTLlamaBackbone, folder: CheckpointFolder
) -> None:
    """Reads all weights that are not the filter's, one at a time.

    Args:
        backbone: Receives the weights, in its own dtype.
        folder: The checkpoint.

    Raises:
        ValueError: If a tensor is missing, unknown or of another shape. No
            weight has changed then.
    """
    table = _table(backbone)
    shapes = {
        row.hf: tuple(
            reversed(variable.shape) if row.transpose else variable.shape
        )
        for row, variable in table
    }
    check_names(folder, [row for row, _ in table], shapes)
    for row, variable in table:
        _read_into(variable, folder, row)


def _read_into(
    variable: keras.Variable, folder: CheckpointFolder, row: WeightName
) -> None:
    """Reads a weight so that no second copy of it ever exists."""
    backend = keras.backend.backend()
    if backend == "jax":
        # JAX would hold the old value beside the new one.
        variable.value.delete()
        whole = _page_aligned(variable.shape, folder.dtype(row.hf))
        target = whole.T if row.transpose else whole
        for rows, block in folder.blocks(row.hf):
            target[rows] = block
        variable.assign(whole)
        return
    for rows, block in folder.blocks(row.hf):
        place: Any = (slice(None), rows) if row.transpose else rows
        block = block.T if row.transpose else block
        if backend == "torch":
            variable.value.data[place] = _torch_tensor(block)
        else:
            variable.value[place].assign(block.astype(variable.dtype))


def _page_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that JAX takes over instead of copying it."""
    size = math.prod(shape)
    pages = mmap.mmap(-1, max(1, size * dtype.itemsize))
    return np.frombuffer(pages, dtype, size).reshape(shape)


def _torch_tensor(array: np.ndarray) -> Any:
    """The array as a tensor, whose bfloat16 NumPy and torch share no name."""
    torch = import_extra("torch", "torch")
    array = np.ascontiguousarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def export_checkpoint(backbone: BFTLlamaBackbone, folder: Path) -> None:
    """Writes configuration and weights as transformers reads them.

    Args:
        backbone: A backbone whose filter is off, without gates.
        folder: The new folder.

    Raises:
        ValueError: If the filter is on, or attention is gated.
        FileExistsError: If the folder holds a checkpoint.
    """
    if backbone.get_config()["gated_attention"]:
        raise ValueError(
            "A checkpoint for transformers must have no gates, as its Llama "
            "has none. Received: a backbone with gated_attention=True"
        )
    if backbone.bayesian:
        strengths = [
            float(ops.convert_to_numpy(layer.strength))
            for layer in backbone.transformer_layers
        ]
        if any(strengths):
            raise ValueError(
                "A checkpoint for transformers must have the strength 0 in "
                "every layer, as transformers knows no filter. "
                f"Received: strengths {strengths}"
            )
    table = _table(backbone)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = keras.backend.standardize_dtype(table[0][1].dtype)
    arguments = {
        key: value
        for key, value in backbone.get_config().items()
        if key not in (*_OURS, "name", "trainable")
    }
    write_llama_config(folder, arguments, dtype)

    def source(row: WeightName, variable: keras.Variable) -> TensorSource:
        shape = tuple(variable.shape)

        def read() -> np.ndarray:
            array = np.asarray(ops.convert_to_numpy(variable.value))
            return array.T if row.transpose else array

        return TensorSource(
            row.hf, shape[::-1] if row.transpose else shape, dtype, read
        )

    write_checkpoint(folder, [source(*pair) for pair in table])
