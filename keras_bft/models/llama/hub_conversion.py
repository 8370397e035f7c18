"""Llama and Llama 3 of keras-hub as this library's decoder."""

from typing import Any

from keras_bft.models._hub_weights import check_options
from keras_bft.models._hub_weights import copy_weights
from keras_bft.models._hub_weights import dropout_option
from keras_bft.models._hub_weights import refuse
from keras_bft.models.llama._zero_initialization import zero_initialization
from keras_bft.models.llama.backbone import BFTLlamaBackbone
from keras_bft.models.llama.causal_lm import BFTLlamaCausalLM

# What a scaling of Llama 3 is made of: keras-hub's names and this library's.
_SCALING = {
    "rope_frequency_adjustment_factor": "factor",
    "rope_low_freq_factor": "low_freq_factor",
    "rope_high_freq_factor": "high_freq_factor",
    "rope_pretraining_sequence_length": "original_max_position_embeddings",
}


def convert(
    model: Any, options: dict[str, Any]
) -> BFTLlamaBackbone | BFTLlamaCausalLM:
    """Makes a backbone or a language model of one of keras-hub's."""
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return _convert_backbone(model, options)
    ours = {key: x for key, x in options.items() if key != "preprocessor"}
    return BFTLlamaCausalLM(
        _convert_backbone(backbone, ours),
        preprocessor=options.get("preprocessor"),
        name=model.name,
    )


def _convert_backbone(source: Any, options: dict[str, Any]) -> BFTLlamaBackbone:
    decided = {
        "vocabulary_size": source.vocabulary_size,
        "num_layers": source.num_layers,
        "num_query_heads": source.num_query_heads,
        "hidden_dim": source.hidden_dim,
        "intermediate_dim": source.intermediate_dim,
        "num_key_value_heads": source.num_key_value_heads,
        "head_dim": source.hidden_dim // source.num_query_heads,
        "rope_theta": float(source.rope_max_wavelength),
        "rope_scaling": _rope_scaling(source),
        "layer_norm_epsilon": _epsilon(source),
        "tie_word_embeddings": source.token_embedding.tie_weights,
        "use_bias": False,
        "dtype": source.dtype_policy,
    }
    check_options(source, options, decided)
    ours = {
        "name": source.name,
        **options,
        "dropout": dropout_option(source, source.dropout, options),
    }
    with zero_initialization():
        new = BFTLlamaBackbone(**decided, **ours)
    embedding = {"embeddings": new.token_embedding.embeddings}
    if not source.token_embedding.tie_weights:
        head = new.token_embedding.reverse_embeddings
        embedding["reverse_embeddings"] = head
    copy_weights(source.token_embedding, embedding)
    for old, layer in zip(
        source.transformer_layers, new.transformer_layers, strict=True
    ):
        copy_weights(old, _pairs(layer))
    copy_weights(source.layer_norm, {"scale": new.final_norm.gamma})
    return new


def _pairs(new: Any) -> dict[str, Any]:
    """The variables of a layer by keras-hub's paths."""
    attention, network = new.attention, new.feed_forward
    return {
        "self_attention/query/kernel": attention.query_dense.kernel,
        "self_attention/key/kernel": attention.key_dense.kernel,
        "self_attention/value/kernel": attention.value_dense.kernel,
        "self_attention/attention_output/kernel": attention.output_dense.kernel,
        "self_attention_layernorm/scale": attention.norm.gamma,
        "feedforward_gate_dense/kernel": network.input_dense.kernel,
        "feedforward_intermediate_dense/kernel": network.up_dense.kernel,
        "feedforward_output_dense/kernel": network.output_dense.kernel,
        "feedforward_layernorm/scale": network.norm.gamma,
    }


def _epsilon(source: Any) -> float:
    """Epsilon of the norms as they are, whatever the configuration says."""
    epsilons = {
        norm.path: norm.epsilon
        for norm in source._flatten_layers()
        if norm.name.endswith("layernorm")
    }
    if len(set(epsilons.values())) > 1:
        refuse(source, "epsilon", epsilons, "the same in all norms")
    epsilon: float = source.layer_norm.epsilon
    return epsilon


def _rope_scaling(source: Any) -> dict[str, Any] | None:
    if source.rope_position_scaling_factor != 1:
        refuse(
            source,
            "rope_position_scaling_factor",
            source.rope_position_scaling_factor,
            "1.0: keras-hub (0.32) takes no notice of another, so it cannot "
            "be told which positions are meant. Read the checkpoint with "
            "BFTLlamaCausalLM.from_preset, or say rope_scaling in a new "
            "backbone",
        )
    if source.rope_low_freq_factor is None:
        return None
    numbers = {ours: getattr(source, name) for name, ours in _SCALING.items()}
    return {"type": "llama3", **numbers}
