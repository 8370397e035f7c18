"""Layers that the properties are tried on, and the arrays of a case."""

import functools
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from keras_bft.layers import BFTAttention
from keras_bft.layers import BFTHSTULayer
from keras_bft.layers import BFTLayer
from keras_bft.layers import PrecisionFeedForward
from tests.layers.layer_checks import flat
from tests.layers.layer_checks import randomize
from tests.properties.programs import Program
from tests.properties.programs import Run
from tests.properties.settings import NIGHTLY
from tests.properties.strategies import Numbers

Options = tuple[tuple[str, Any], ...]


class Form(NamedTuple):
    """What JAX compiles for.

    Attributes:
        layer: One of `LAYERS`.
        options: Its arguments, names and values.
        sizes: Batch, length and width.
        token: Whether the state has one precision for all channels.
        policy: Dtype policy.
    """

    layer: str
    options: Options
    sizes: tuple[int, int, int] = (2, 5, 8)
    token: bool = False
    policy: str = "float32"


def _options(**options: Any) -> Options:
    return tuple(options.items())


def _hstu(num_heads: int, **options: Any) -> keras.layers.Layer:
    return BFTHSTULayer(num_heads, 6, num_time_buckets=0, **options)


LAYERS = {
    "bft": functools.partial(BFTLayer, feed_forward_dim=12),
    "hstu": _hstu,
    "attention": BFTAttention,
    "feed_forward": PrecisionFeedForward,
}
LIGHT = Form("bft", _options(num_heads=2, causal=True))
FULL = Form(
    "bft",
    _options(num_heads=4, num_key_value_heads=2, form="full", gated=True),
)
POST_NORM = Form(
    "bft",
    _options(
        num_heads=2, form="full", normalize_first=False, normalization="rms"
    ),
)
HSTU = Form("hstu", _options(num_heads=2, form="full"))
ATTENTION = Form(
    "attention",
    _options(num_heads=2, key_precision="per_head", variance="channel"),
)
FEED_FORWARD = Form(
    "feed_forward",
    _options(hidden_dim=5, jacobian="diagonal", differentiate_statistics=True),
)
EXACT = [LIGHT, FULL, HSTU, ATTENTION]
FORMS = [
    *EXACT,
    FULL._replace(sizes=(2, 1, 1), options=_options(num_heads=1, form="full")),
    FULL._replace(options=FULL.options + _options(dropout=0.6)),
    LIGHT._replace(policy="mixed_float16"),
    HSTU._replace(policy="mixed_float16"),
    POST_NORM._replace(policy="mixed_bfloat16", token=True),
    FEED_FORWARD._replace(policy="mixed_float16"),
]
if NIGHTLY:
    EXACT += [
        form._replace(options=form.options + _options(**options))
        for form, options in (
            (POST_NORM, {}),
            (FULL, {"attention": "dense"}),
            (LIGHT, {"attention": "blockwise", "precision": "token"}),
            (LIGHT, {"key_precision": "per_head", "carry_units": False}),
            (LIGHT, {"kriging_weights": False, "kalman_gain": False}),
            (FULL, {"initial_log_process_noise": None}),
            (HSTU, {"precision": "token", "carry_units": False}),
            (HSTU, {"causal": False}),
        )
    ]
    FORMS += EXACT
    FORMS += [
        form._replace(policy=policy)
        for form in (FULL, HSTU, POST_NORM, ATTENTION, FEED_FORWARD)
        for policy in ("mixed_float16", "mixed_bfloat16")
    ]
    FORMS += [
        LIGHT._replace(
            options=LIGHT.options
            + _options(dropout=0.6, dropout_mode="inverted")
        ),
        Form("hstu", _options(num_heads=1), (1, 1, 2), True),
        POST_NORM._replace(sizes=(1, 1, 2), policy="mixed_float16"),
    ]


def build(form: Form, **options: Any) -> keras.layers.Layer:
    """The layer of a form, with other options besides."""
    layer = LAYERS[form.layer](
        **dict(form.options) | options, dtype=form.policy, name=form.layer
    )
    batch, length, width = form.sizes
    shapes = [form.sizes]
    if form.layer != "attention" and layer.bayesian:
        shapes.append((batch, length, 1 if form.token else width))
    layer.build(*shapes)
    return layer


class LayerProgram:
    """A layer, compiled once, whose weights each case draws again.

    Args:
        form: The layer.
        outputs: Number of outputs that are kept.
        **options: Arguments of the layer besides those of the form.
    """

    def __init__(
        self, form: Form, outputs: int | None = None, **options: Any
    ) -> None:
        layer = build(form, **options)
        self.layer = layer
        self.start = layer.get_weights()
        training = "dropout" in dict(form.options)

        def call(state: Any, log_precision: Any, padding_mask: Any) -> Any:
            inputs = [state, log_precision] if layer.bayesian else [state]
            arguments = {"padding_mask": padding_mask, "training": training}
            return flat(layer(*inputs, **arguments))[:outputs]

        self.program = Program(
            call,
            ("state", "log_precision"),
            layer,
            scale=2**-8 if form.policy == "mixed_float16" else 1.0,
        )

    def __call__(
        self, drawn: Numbers, arrays: dict[str, Any], **filled: float
    ) -> Run:
        """Outputs and gradients, with one number in all of some weights."""
        self.draw(drawn, **filled)
        return self.program(**arrays)

    def draw(self, drawn: Numbers, **filled: float) -> None:
        """Gives the layer the weights and the strength of a case."""
        self.layer.set_weights(self.start)
        randomize(self.layer, drawn.seed)
        filled = {"strength": drawn.strength, **filled}
        for weight in self.layer.weights:
            for name, value in filled.items():
                if weight.path.endswith(f"/{name}"):
                    weight.assign(np.full(weight.shape, value, "float32"))


@functools.cache
def program(form: Form) -> LayerProgram:
    """The layer of a form."""
    return LayerProgram(form)


@functools.cache
def state_program(form: Form, bayesian: bool) -> LayerProgram:
    """The state alone, of the filter or of the standard layer."""
    return LayerProgram(form, 1, bayesian=bayesian)


def layer_arrays(form: Form, drawn: Numbers) -> dict[str, Any]:
    """Arguments of the programs above."""
    batch, length, width = form.sizes
    rng = drawn.rng()
    state = drawn.values(rng, batch, length, width)
    if form.policy == "mixed_float16" and form.options == POST_NORM.options:
        # Without a norm before them, logits may be too large for float16.
        state = np.clip(state, -30.0, 30.0)
    return {
        "state": state,
        "log_precision": drawn.log_precision(
            rng, batch, length, 1 if form.token else width
        ),
        "padding_mask": drawn.visible(batch, length, length)[:, -1],
    }
