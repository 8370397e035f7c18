"""Transformer encoder and decoder layers of keras-hub as `BFTLayer`."""

from typing import Any

from keras_bft.layers import BFTLayer
from keras_bft.models._hub_weights import check_options
from keras_bft.models._hub_weights import copy_weights
from keras_bft.models._hub_weights import dropout_option
from keras_bft.models._hub_weights import refuse
from keras_bft.models._hub_weights import variables_by_path
from keras_bft.ops import activation_derivative


def convert(layer: Any, options: dict[str, Any]) -> BFTLayer:
    """Makes a `BFTLayer` of a built encoder or decoder layer."""
    config = layer.get_config()
    decoder = "decoder_sequence_shape" in config
    if decoder and config["encoder_sequence_shape"]:
        refuse(
            layer,
            "encoder_sequence_shape",
            config["encoder_sequence_shape"],
            "None: a layer with cross-attention has no counterpart here. Use "
            "BFTLayer and BFTAttention(context=...) for a new model",
        )
    try:
        activation_derivative(layer.activation)
    except ValueError as error:
        refuse(
            layer,
            "activation",
            layer.activation,
            f"elementwise, as the precision passes its derivative ({error})",
        )
    attention = "self_attention" if decoder else "self_attention_layer"
    gamma = variables_by_path(layer)["self_attention_layer_norm/gamma"]
    width = gamma.shape[0]
    decided = {
        "num_heads": layer.num_heads,
        "feed_forward_dim": layer.intermediate_dim,
        "head_dim": width // layer.num_heads,
        "num_key_value_heads": None,
        "causal": decoder,
        "activation": layer.activation,
        "gated": False,
        "normalize_first": layer.normalize_first,
        "normalization": "layer",
        "epsilon": _epsilon(layer),
        "use_bias": True,
        "attention_bias": True,
        "dtype": layer.dtype_policy,
    }
    check_options(layer, options, decided)
    ours = {
        "strength": 0.0,
        "dropout_mode": "inverted",
        "name": layer.name,
        **options,
        "dropout": dropout_option(layer, layer.dropout, options),
    }
    new = BFTLayer(**decided, **ours)
    shape = (None, None, width)
    new.build(shape, shape)
    copy_weights(layer, _pairs(new, attention))
    return new


def _epsilon(layer: Any) -> float:
    """Epsilon of the norms as they are, whatever the layer was built with."""
    norms = [
        part for part in layer._flatten_layers() if part.name.endswith("_norm")
    ]
    epsilons = {norm.name: norm.epsilon for norm in norms}
    if len(set(epsilons.values())) > 1:
        refuse(layer, "epsilon", epsilons, "the same in all norms")
    epsilon: float = norms[0].epsilon
    return epsilon


def _pairs(new: BFTLayer, attention: str) -> dict[str, Any]:
    """The new variables by keras-hub's paths."""
    norms = [new.attention, new.feed_forward]
    norms = new.post_norms or [part.norm for part in norms]
    pairs: dict[str, Any] = {}
    for theirs, dense in {
        f"{attention}/query": new.attention.query_dense,
        f"{attention}/key": new.attention.key_dense,
        f"{attention}/value": new.attention.value_dense,
        f"{attention}/attention_output": new.attention.output_dense,
        "feedforward_intermediate_dense": new.feed_forward.input_dense,
        "feedforward_output_dense": new.feed_forward.output_dense,
    }.items():
        pairs[f"{theirs}/kernel"] = dense.kernel
        pairs[f"{theirs}/bias"] = dense.bias
    names = ("self_attention_layer_norm", "feedforward_layer_norm")
    for theirs, norm in zip(names, norms, strict=True):
        pairs[f"{theirs}/gamma"] = norm.gamma
        pairs[f"{theirs}/beta"] = norm.beta
    return pairs
