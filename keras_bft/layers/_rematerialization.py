"""Layers that can be computed anew for their gradient."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bft.layers._trace import is_heard
from keras_bft.typing import Tensor


class RematerializedLayer(keras.layers.Layer):
    """Base of layers that work under `keras.RematScope`.

    Keras hands all arguments of a call to the backend. JAX then traces
    `training` and TensorFlow refuses names, and the state of a dropout, which
    changes within, is lost or changes twice. Here only what can have a
    gradient is handed over, and variables as their values.
    """

    def rematerialized_call(
        self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        """The call, or where the scope asks for it one that keeps little."""
        if is_heard():
            # What is reported from within would be of no use outside.
            return layer_call
        chosen = super().rematerialized_call(layer_call, *args, **kwargs)
        if chosen is layer_call or self._remat_mode.mode == "activations":
            return chosen
        return lambda *args, **kwargs: self._call_keeping_inputs(
            layer_call, args, kwargs
        )

    def _call_keeping_inputs(
        self,
        layer_call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        given = keras.tree.flatten((args, kwargs))
        places = [place for place, x in enumerate(given) if _is_float(x)]
        weights = [v for v in self.variables if _is_float(v.value)]
        states = [v for v in self.variables if not _is_float(v.value)]
        # PyTorch changes a state in place, which the gradient still needs.
        before = [ops.copy(state.value) for state in states]

        def call(*values: Tensor) -> Any:
            new, tensors = values[: len(weights)], values[len(weights) :]
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            args_, kwargs_ = keras.tree.pack_sequence_as((args, kwargs), given)
            mapping = zip([*weights, *states], [*new, *before], strict=True)
            with keras.StatelessScope(mapping) as scope:
                outputs = layer_call(*args_, **kwargs_)
            changed = {}
            for index, value in enumerate(before):
                now = scope.get_current_value(states[index])
                if now is not value:
                    changed[index] = now
            return outputs, changed

        outputs, changed = keras.remat(call)(
            *(ops.convert_to_tensor(weight) for weight in weights),
            *(given[place] for place in places),
        )
        for index, value in changed.items():
            states[index].assign(value)
        return outputs


def _is_float(x: Any) -> bool:
    return ops.is_tensor(x) and keras.backend.is_float_dtype(x.dtype)
