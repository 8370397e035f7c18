"""What the weights of a Llama are called at Hugging Face and here."""

from typing import Any
from typing import NamedTuple

from keras_bft.models.llama.checkpoint_folder import CheckpointFolder

_SHOWN = 10

_TIED_HEAD = "lm_head.weight"
# A buffer of old checkpoints, which follows from `rope_theta`.
_BUFFER = ".rotary_emb.inv_freq"


class WeightName(NamedTuple):
    """The two names of a weight.

    Attributes:
        hf: Name in a Hugging Face checkpoint.
        ours: Path of the variable in `BFTLlamaBackbone`, joined by `/`.
        transpose: Whether one is the transpose of the other: Hugging Face
            keeps linear maps as (outputs, inputs), Keras as (inputs, outputs).
    """

    hf: str
    ours: str
    transpose: bool


def weight_table(
    num_layers: int, tie_word_embeddings: bool, use_bias: bool
) -> list[WeightName]:
    """Lists all weights of a Llama, from the embedding to the output.

    Args:
        num_layers: Number of decoder layers.
        tie_word_embeddings: Whether the output layer is the embedding, so
            that it has no weight of its own.
        use_bias: Whether the four linear maps of attention have biases.

    Returns:
        The names.

    Examples:

    >>> table = weight_table(
    ...     num_layers=1, tie_word_embeddings=False, use_bias=False
    ... )
    >>> table[-1].hf, table[-1].ours, table[-1].transpose
    ('lm_head.weight', 'output_embedding/kernel', True)
    """
    if num_layers < 1:
        raise ValueError(
            "`num_layers` must be at least 1. Received: "
            f"num_layers={num_layers}"
        )
    table = [
        WeightName(
            "model.embed_tokens.weight", "token_embedding/embeddings", False
        )
    ]
    for index in range(num_layers):
        table += _decoder_layer(
            f"model.layers.{index}", f"decoder_layer_{index}", use_bias
        )
    table.append(WeightName("model.norm.weight", "final_norm/gamma", False))
    if not tie_word_embeddings:
        table.append(WeightName(_TIED_HEAD, "output_embedding/kernel", True))
    return table


def _decoder_layer(hf: str, ours: str, use_bias: bool) -> list[WeightName]:
    names = [
        WeightName(
            f"{hf}.input_layernorm.weight",
            f"{ours}/attention/norm/gamma",
            False,
        )
    ]
    for letter, word in zip(
        "qkvo", ("query", "key", "value", "output"), strict=True
    ):
        theirs = f"{hf}.self_attn.{letter}_proj"
        path = f"{ours}/attention/{word}"
        names.append(WeightName(f"{theirs}.weight", f"{path}/kernel", True))
        if use_bias:
            names.append(WeightName(f"{theirs}.bias", f"{path}/bias", False))
    names.append(
        WeightName(
            f"{hf}.post_attention_layernorm.weight",
            f"{ours}/feed_forward/norm/gamma",
            False,
        )
    )
    for theirs, word in (("gate", "input"), ("up", "up"), ("down", "output")):
        names.append(
            WeightName(
                f"{hf}.mlp.{theirs}_proj.weight",
                f"{ours}/feed_forward/{word}/kernel",
                True,
            )
        )
    return names


def check_config(folder: CheckpointFolder, arguments: dict[str, Any]) -> None:
    """Checks that a checkpoint's tensors are those its configuration describes.

    To be called before a model is built, which takes as much memory as the
    configuration says, whatever the size of the files.

    Args:
        folder: The checkpoint.
        arguments: All that `read_llama_config` returns.

    Raises:
        ValueError: If they are not.
    """
    if arguments["num_layers"] > len(folder.names):
        raise ValueError(
            "The configuration must not have more layers than the checkpoint "
            f"has tensors. Received: folder={str(folder.path)!r} with "
            f"num_hidden_layers={arguments['num_layers']} and "
            f"{len(folder.names)} tensors"
        )
    table = weight_table(
        arguments["num_layers"],
        arguments["tie_word_embeddings"],
        arguments["use_bias"],
    )
    sizes = _projection_sizes(arguments)
    shapes: dict[str, tuple[int, ...]] = {}
    for name in (row.hf for row in table):
        *_, module, kind = name.split(".")
        shape = sizes.get(module, (arguments["hidden_dim"],))
        shapes[name] = shape[:1] if kind == "bias" else shape
    check_names(folder, table, shapes)


def _projection_sizes(arguments: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Shapes of all matrices, in the Hugging Face order of axes."""
    hidden, inner = arguments["hidden_dim"], arguments["intermediate_dim"]
    heads = arguments["num_query_heads"]
    width = arguments["head_dim"] or hidden // heads
    queries, keys = heads * width, arguments["num_key_value_heads"] * width
    vocabulary = arguments["vocabulary_size"]
    return {
        "embed_tokens": (vocabulary, hidden),
        "lm_head": (vocabulary, hidden),
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }


def check_names(
    folder: CheckpointFolder,
    table: list[WeightName],
    expected_shapes: dict[str, tuple[int, ...]],
) -> None:
    """Checks that a checkpoint has the weights of a model and no others.

    Two kinds of tensors may be there and are not used: `inv_freq` buffers of
    rotary embeddings, and an `lm_head.weight` though the embeddings are tied.

    Args:
        folder: The checkpoint.
        table: The weights that the model has.
        expected_shapes: Shape of every one, by its Hugging Face name and in
            the Hugging Face order of axes.

    Raises:
        ValueError: If tensors are missing, left over or of another shape.
            The error lists all three.
    """
    wanted = [entry.hf for entry in table]
    if set(wanted) != set(expected_shapes):
        raise ValueError(
            "`expected_shapes` must have the Hugging Face names of `table`. "
            "Received other names: "
            f"{sorted(set(wanted) ^ set(expected_shapes))[:_SHOWN]}"
        )
    there = set(folder.names)
    missing = [name for name in wanted if name not in there]
    extra = [
        name
        for name in folder.names
        if name not in expected_shapes
        and name != _TIED_HEAD
        and not name.endswith(_BUFFER)
    ]
    other = [
        f"{name} is {folder.shape(name)} and should be "
        f"{tuple(expected_shapes[name])}"
        for name in wanted
        if name in there and folder.shape(name) != tuple(expected_shapes[name])
    ]
    problems = [
        f"{len(names)} {what}: {'; '.join(n[:200] for n in names[:_SHOWN])}"
        + ("; ..." if len(names) > _SHOWN else "")
        for what, names in (
            ("missing", missing),
            ("not of this model", extra),
            ("of another shape", other),
        )
        if names
    ]
    if problems:
        raise ValueError(
            "The tensors of the checkpoint are not those that its "
            f"configuration describes. {'. '.join(problems)}. Received: "
            f"folder={str(folder.path)!r}"
        )
