"""The Llama decoder's body, carrying a precision beside each token's state."""

import math
from typing import Any

import keras
from keras.dtype_policies import DTypePolicyMap

from keras_bft.layers import BFTLayer
from keras_bft.layers import PrecisionMLP
from keras_bft.layers import RotaryEmbedding
from keras_bft.layers import SegmentMask
from keras_bft.layers import StateNormalization
from keras_bft.layers._filter_layer import check_positive
from keras_bft.layers._filter_layer import head_width
from keras_bft.models.llama._zero_initialization import initializes_with_zeros
from keras_bft.models.llama.encoding import EncodingBackbone
from keras_bft.models.llama.layout import layout_map

# Standard deviation of new kernels and embeddings, Llama's.
_STDDEV = 0.02


def _initializer() -> keras.Initializer:
    if initializes_with_zeros():
        return keras.initializers.Zeros()
    return keras.initializers.RandomNormal(stddev=_STDDEV)


@keras.saving.register_keras_serializable(package="keras_bft")
class BFTLlamaBackbone(EncodingBackbone):
    """Llama decoder without its head: standard, or a Bayesian filter.

    RMS norm, rotary positions, grouped queries and SwiGLU, with the filter of
    `keras_bft.layers.BFTLayer` in every layer. At strength 0 the states are
    the standard decoder's, so a pretrained model can be converted and the
    filter raised from there.

    Args:
        vocabulary_size: Number of token ids.
        num_layers: Number of layers.
        num_query_heads: Number of query heads.
        hidden_dim: Width of the state.
        intermediate_dim: Width of the feed-forward network.
        num_key_value_heads: Number of key and value heads. Defaults to
            `num_query_heads`.
        head_dim: Channels of a head. Defaults to `hidden_dim //
            num_query_heads`.
        rope_theta: Base of the rotary frequencies. Defaults to `10000.0`.
        rope_scaling: See `keras_bft.layers.RotaryEmbedding`.
        layer_norm_epsilon: Epsilon of the RMS norms. Defaults to `1e-6`.
        tie_word_embeddings: Whether the head is the embeddings transposed.
        use_bias: Whether the attention's projections have biases.
        max_position_embeddings: Longest sequence the weights were trained on,
            kept for the export. It limits nothing here.
        dropout: Dropout of attention weights, hidden layer and outputs.
        bayesian: `False` builds the standard decoder. Defaults to `True`.
        gated_attention: Whether a decoder with `bayesian=False` gates its
            attention (Qiu et al. 2025). The gates start at one, so that a
            checkpoint is what it was. Defaults to `False`.
        strength: Filter strength of every layer. Defaults to `0.0`.
        trainable_strength: Whether the strengths are learned.
        form: `"light"` (default) or `"full"`, see `keras_bft.layers.BFTLayer`.
        precision: `"channel"` (default) or `"token"`, see `BFTLayer`.
        prior_dim: Hidden width of the `PrecisionMLP` that gives each token its
            prior precision. Defaults to `16`.
        dtype: Dtype or policy of the computations and weights.
        **kwargs: `name` and `trainable` of a Keras model.

    Call arguments:
        inputs: Dict of `"token_ids"`, `(B, T)`, and `"padding_mask"`,
            `(B, T)`: 0 at padding and 1 elsewhere, or the number of the
            example where several are packed into a row. Padding may be left,
            right or between.

    Returns:
        States `(B, T, D)` after the last norm. `encode()` also returns their
        precision.

    Raises:
        ValueError: If an argument is outside its domain.

    Example:

    >>> backbone = keras_bft.models.BFTLlamaBackbone(
    ...     vocabulary_size=50, num_layers=2, num_query_heads=4,
    ...     hidden_dim=16, intermediate_dim=32, num_key_value_heads=2)
    >>> states = backbone({"token_ids": np.array([[3, 7, 9]]),
    ...                    "padding_mask": np.ones((1, 3), "int32")})
    >>> tuple(states.shape)
    (1, 3, 16)
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_query_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        rope_theta: float = 10000.0,
        rope_scaling: dict[str, Any] | None = None,
        layer_norm_epsilon: float = 1e-6,
        tie_word_embeddings: bool = False,
        use_bias: bool = False,
        max_position_embeddings: int = 2048,
        dropout: float = 0.0,
        bayesian: bool = True,
        gated_attention: bool = False,
        strength: float = 0.0,
        trainable_strength: bool = False,
        form: str = "light",
        precision: str = "channel",
        prior_dim: int = 16,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        check_positive("vocabulary_size", vocabulary_size)
        check_positive("num_layers", num_layers)
        check_positive("num_query_heads", num_query_heads)
        check_positive("hidden_dim", hidden_dim)
        check_positive("intermediate_dim", intermediate_dim)
        check_positive("prior_dim", prior_dim)
        head_dim = head_width(num_query_heads, head_dim, (None, hidden_dim))
        arguments: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_query_heads": num_query_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "num_key_value_heads": num_key_value_heads or num_query_heads,
            "head_dim": head_dim,
            "rope_theta": rope_theta,
            "rope_scaling": rope_scaling,
            "layer_norm_epsilon": layer_norm_epsilon,
            "tie_word_embeddings": tie_word_embeddings,
            "use_bias": use_bias,
            "max_position_embeddings": max_position_embeddings,
            "dropout": dropout,
            "bayesian": bayesian,
            "gated_attention": gated_attention,
            "strength": strength,
            "trainable_strength": trainable_strength,
            "form": form,
            "precision": precision,
            "prior_dim": prior_dim,
        }

        # === Layers ===
        initializer = _initializer()
        # Keras can't save an embedding again that was given a map.
        policy = keras.dtype_policies.get(dtype)
        if isinstance(policy, DTypePolicyMap):
            policy = policy["token_embedding"]
        self.token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            tie_weights=tie_word_embeddings,
            embeddings_initializer=initializer,
            dtype=policy,
            name="token_embedding",
        )
        log_variance = 2.0 * math.log(_STDDEV)
        self.prior = None
        if bayesian:
            self.prior = PrecisionMLP(
                prior_dim,
                initial_log_precision=-log_variance,
                dtype=dtype,
                name="prior",
            )
        self.segment_mask = SegmentMask(dtype=dtype, name="segment_mask")
        self.rotary_embedding = RotaryEmbedding(
            head_dim,
            rope_theta,
            rope_scaling,
            dtype=dtype,
            name="rotary_embedding",
        )
        self.transformer_layers = [
            BFTLayer(
                num_query_heads,
                intermediate_dim,
                head_dim=head_dim,
                num_key_value_heads=arguments["num_key_value_heads"],
                form=form,
                precision=precision,
                strength=strength,
                trainable_strength=trainable_strength,
                initial_log_process_noise=log_variance - 2.0,
                # Nothing reads the precision that the last layer predicts.
                trainable_process_noise=index < num_layers - 1,
                activation="silu",
                gated=True,
                normalization="rms",
                epsilon=layer_norm_epsilon,
                dropout=dropout,
                use_bias=False,
                attention_bias=use_bias,
                kernel_initializer=initializer,
                bayesian=bayesian,
                gated_attention="from_one" if gated_attention else False,
                dtype=dtype,
                name=f"decoder_layer_{index}",
            )
            for index in range(num_layers)
        ]
        self.final_norm = StateNormalization(
            "rms", layer_norm_epsilon, dtype=dtype, name="final_norm"
        )

        # === Functional Model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        state, _ = self.encode(inputs["token_ids"], inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=state, dtype=dtype, **kwargs)

        # === Config ===
        self._arguments = arguments
        self.bayesian = bayesian
        self.num_layers = num_layers
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.tie_word_embeddings = tie_word_embeddings
        self.use_bias = use_bias

    @staticmethod
    def get_layout_map(
        device_mesh: Any,
        model_parallel_dim_name: str = "model",
        data_parallel_dim_name: str = "batch",
    ) -> Any:
        """The layout of the weights for `keras.distribution.ModelParallel`.

        Args:
            device_mesh: A `keras.distribution.DeviceMesh`.
            model_parallel_dim_name: Axis of the mesh that splits weights; its
                size must divide the numbers of heads, of key and value heads,
                of hidden channels and of tokens.
            data_parallel_dim_name: Axis of the mesh that splits batches.

        Returns:
            A `keras.distribution.LayoutMap`. Norms and precision weights are
            on every device.
        """
        return layout_map(
            device_mesh, model_parallel_dim_name, data_parallel_dim_name
        )

    def get_config(self) -> dict[str, Any]:
        policy = self.dtype_policy
        if not isinstance(policy, DTypePolicyMap):
            quantized = {
                layer.path: layer.dtype_policy
                for layer in self._flatten_layers()
                if layer.quantization_mode is not None
            }
            if quantized:
                # That of keras-hub leaves out the policy of the other layers,
                # which would come back in the default of the day.
                policy = DTypePolicyMap(policy.name, quantized)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(policy),
            **self._arguments,
        }
