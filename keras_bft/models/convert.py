"""Models and layers of keras-hub as those of this library."""

import importlib
from typing import Any

from keras_bft._extras import import_extra
from keras_bft.models._hub_weights import check_plain

# Public classes of keras-hub, and the module that converts them.
_CONVERTERS = {
    "layers.TransformerEncoder": "_hub_transformer",
    "layers.TransformerDecoder": "_hub_transformer",
    "models.LlamaBackbone": "llama.hub_conversion",
    "models.Llama3Backbone": "llama.hub_conversion",
    "models.LlamaCausalLM": "llama.hub_conversion",
    "models.Llama3CausalLM": "llama.hub_conversion",
}


def convert(model: Any, **options: Any) -> Any:
    """Turns a keras-hub layer or model into a filter with the same weights.

    The filter starts at strength 0, where it computes what the original did,
    to 1e-5 in float32 at all real positions. Raise the strength with
    `keras_bft.training.StrengthSchedule`, or learn it
    (`trainable_strength=True`). The original is not changed.

    | keras-hub | becomes |
    |---|---|
    | `layers.TransformerEncoder` | `keras_bft.layers.BFTLayer` |
    | `layers.TransformerDecoder` without cross-attention | `BFTLayer` with
      `causal=True` |
    | `models.LlamaBackbone`, `models.Llama3Backbone` |
      `keras_bft.models.BFTLlamaBackbone` |
    | `models.LlamaCausalLM`, `models.Llama3CausalLM` |
      `keras_bft.models.BFTLlamaCausalLM`, of token ids |

    A converted layer is called as `state, log_precision = layer(state,
    log_precision, padding_mask=...)`, or in the original's place as
    `state = layer(state)`: the mask of a decoder, `decoder_padding_mask`
    there, is `padding_mask` here. Give the last layer, whose precision
    nothing reads, and one in the original's place
    `trainable_process_noise=False`.

    A converted language model keeps no preprocessor, as generation here needs
    this library's: give a `keras_bft.models.BFTLlamaCausalLMPreprocessor` as
    `preprocessor`, or read a Hugging Face checkpoint with
    `BFTLlamaCausalLM.from_preset`, which brings its own.

    Args:
        model: A built layer or model of one of these classes, and not of a
            subclass of one.
        **options: Arguments of the new layer or backbone that the original
            does not decide: `strength` (default `0.0`), `trainable_strength`,
            `form`, `precision`, `name` and others of the filter, and
            `dropout`, which must be given where the original has some, as
            this library drops in other places. Of a language model also
            `preprocessor`.

    Returns:
        The new layer or model, in the dtype policy of the original.

    Raises:
        ValueError: If the original is of another class, is not built, is
            quantized or has LoRA weights, or computes what the new one would
            not. The error names the attribute.
        ImportError: If keras-hub (the extra `llm`) is not installed.

    Example:

    ```python
    encoder = keras_hub.layers.TransformerEncoder(256, num_heads=4)
    encoder.build((None, None, 128))
    ...  # trained
    layer = keras_bft.convert(encoder, trainable_strength=True)
    state, log_precision = layer(state, log_precision)
    ```

    References:
        - [Bayesian Filtering Transformers](https://arxiv.org/abs/2605.18832)
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Touvron et al., 2023, Llama](https://arxiv.org/abs/2302.13971)
    """
    keras_hub = import_extra("keras_hub", "llm")
    for path, module in _CONVERTERS.items():
        package, name = path.split(".")
        if type(model) is getattr(getattr(keras_hub, package), name, None):
            check_plain(model)
            converter = importlib.import_module(f"keras_bft.models.{module}")
            return converter.convert(model, options)
    names = ", ".join(f"keras_hub.{path}" for path in _CONVERTERS)
    raise ValueError(
        f"`model` must be one of {names}, and not of a subclass, which may "
        f"compute something else. Received: model={model!r} of the class "
        f"{type(model).__module__}.{type(model).__qualname__}"
    )
