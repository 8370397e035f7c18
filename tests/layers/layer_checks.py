"""What every layer has to do, whatever it computes."""

import inspect
import zlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

POLICIES = ("mixed_float16", "mixed_bfloat16")


@keras.saving.register_keras_serializable(package="keras_bft_tests")
class LayerModel(keras.Model):
    """Subclassed model around one layer, called on a list of inputs."""

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        return self.layer(*inputs)

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        return {**super().get_config(), "layer": layer}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LayerModel":
        config = dict(config)
        layer = keras.saving.deserialize_keras_object(config.pop("layer"))
        return cls(layer, **config)


@keras.saving.register_keras_serializable(package="keras_bft_tests")
class MaskProbe(keras.layers.Layer):
    """Returns the Keras mask of its input, as numbers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x: Any, mask: Any = None) -> Any:
        if mask is None:
            raise ValueError("No mask arrived. Received: mask=None")
        return ops.cast(mask, "int32")


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def numpy(x: Any) -> np.ndarray:
    """A tensor without its graph, as float64 or bool."""
    x = ops.stop_gradient(ops.convert_to_tensor(x))
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype in ("float16", "bfloat16"):
        x = ops.cast(x, "float32")
    array = ops.convert_to_numpy(x)
    return array if array.dtype == bool else array.astype("float64")


def flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def arrays(outputs: Any) -> list[np.ndarray]:
    return [numpy(output) for output in flat(outputs)]


def randomize(layer: keras.layers.Layer, seed: int = 0) -> None:
    """Gives all trainable weights values that hide no term.

    Kernels keep their order of magnitude; scales, biases and log-precisions
    are moved by about a fifth.
    """
    for weight in layer.trainable_variables:
        shape = tuple(weight.shape)
        # By name, so that layers with other weights besides share these.
        name = weight.path.split("/", 1)[-1].encode()
        rng = np.random.default_rng([seed, zlib.crc32(name)])
        if len(shape) == 2 and 1 not in shape:
            value = rng.normal(size=shape) * shape[0] ** -0.5
        else:
            value = numpy(weight) + 0.2 * rng.normal(size=shape)
        weight.assign(value.astype("float32"))


def weighted_sum(x: Any, mask: np.ndarray | None = None) -> Any:
    """A scalar to which each entry contributes with a weight of its own."""
    shape = tuple(x.shape)
    probe = normal(np.random.default_rng(5), *shape)
    if mask is not None:
        probe = probe * mask[..., None]
    return ops.sum(x * ops.convert_to_tensor(probe, dtype=x.dtype))


def copy_weights(
    source: keras.layers.Layer, target: keras.layers.Layer
) -> set[str]:
    """Gives the target the weights of the source, by their names.

    Returns the names of those that the target does not have.
    """
    named = {weight.path.split("/", 1)[1]: weight for weight in source.weights}
    for weight in target.weights:
        weight.assign(named.pop(weight.path.split("/", 1)[1]))
    return set(named)


def variable_gradients(
    function: Callable[[], Any], variables: list[Any]
) -> tuple[float, list[np.ndarray]]:
    """Value and gradients of a scalar function of Keras variables.

    A variable that the function does not depend on has a gradient of zeros.
    Nothing is compiled: a layer takes seconds to, and runs once.
    """

    def pure(values: list[Any]) -> Any:
        mapping = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            # torch refuses a result that depends on no variable at all.
            return function() + 0.0 * ops.sum(values[0])

    values = [ops.convert_to_tensor(ops.copy(v)) for v in variables]
    if keras.backend.backend() == "jax":
        import jax

        value, gradients = jax.jit(jax.value_and_grad(pure))(values)
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            value = pure(values)
        gradients = tape.gradient(value, values, unconnected_gradients="zero")
    else:
        import torch

        values = [v.detach().requires_grad_() for v in values]
        value = pure(values)
        gradients = torch.autograd.grad(
            value, values, allow_unused=True, materialize_grads=True
        )
    return float(numpy(value)), arrays(list(gradients))


def check_config(
    layer_class: type[keras.layers.Layer], **arguments: Any
) -> keras.layers.Layer:
    """Every argument of the constructor survives a round trip.

    `arguments` has to name all of them, each with another value than its
    default. Returns the layer that was built from the configuration.
    """
    parameters = dict(inspect.signature(layer_class.__init__).parameters)
    del parameters["self"], parameters["kwargs"]
    assert set(arguments) == set(parameters)
    for name, parameter in parameters.items():
        assert arguments[name] != parameter.default, name

    layer = layer_class(
        **arguments, name="named", dtype="mixed_bfloat16", trainable=False
    )
    config = layer.get_config()
    for name, value in arguments.items():
        kept = config[name]
        if isinstance(kept, dict) and not isinstance(value, dict):
            kept = kept["class_name"]
            value = type(keras.saving.deserialize_keras_object(config[name]))
            value = value.__name__
        assert kept == value, name
    again = layer_class.from_config(config)
    assert again.get_config() == config
    assert again.name == "named"
    assert again.dtype_policy.name == "mixed_bfloat16"
    assert again.trainable is False
    serialized = keras.saving.serialize_keras_object(layer)
    restored = keras.saving.deserialize_keras_object(serialized)
    assert type(restored) is layer_class
    assert restored.get_config() == config

    required = {
        name: arguments[name]
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    plain = layer_class(**required)
    assert layer_class.from_config(plain.get_config()).get_config() == (
        plain.get_config()
    )
    return again


def symbolic(inputs: list[np.ndarray]) -> list[Any]:
    return [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in inputs]


def functional(
    layer: keras.layers.Layer, inputs: list[np.ndarray]
) -> keras.Model:
    """Functional model around one layer, called on a list of inputs."""
    symbols = symbolic(inputs)
    return keras.Model(symbols, layer(*symbols))


def check_saving(
    make_layer: Callable[[], keras.layers.Layer],
    inputs: list[np.ndarray],
    folder: Any,
) -> None:
    """A `.keras` file of a Functional and of a subclassed model is complete."""
    for wrap in (functional, lambda layer, inputs: LayerModel(layer)):
        model = wrap(make_layer(), inputs)
        model(inputs)
        randomize(model)
        expected = arrays(model(inputs))
        path = folder / "model.keras"
        model.save(path)
        loaded = keras.saving.load_model(path)
        layer, again = model.layers[-1], loaded.layers[-1]
        assert type(again) is type(layer)
        assert again.get_config() == layer.get_config()
        assert len(loaded.weights) == len(model.weights)
        assert len(loaded.trainable_weights) == len(model.trainable_weights)
        actual = arrays(loaded(inputs))
        assert len(actual) == len(expected)
        for x, y in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(x, y)


def check_output_spec(
    make_layer: Callable[[], keras.layers.Layer],
    inputs: list[np.ndarray],
    state_outputs: int = 1,
) -> None:
    """The symbolic outputs are those of the call, in all policies.

    The first `state_outputs` outputs have the compute dtype, the others, all
    log-precisions, are float32.
    """
    for policy in ("float32", *POLICIES):
        keras.config.set_dtype_policy(policy)
        layer = make_layer()
        symbols = flat(layer(*symbolic(inputs)))
        outputs = flat(layer(*inputs))
        assert len(symbols) == len(outputs)
        for index, (symbol, output) in enumerate(
            zip(symbols, outputs, strict=True)
        ):
            dtype = keras.backend.standardize_dtype(output.dtype)
            assert symbol.dtype == dtype
            assert symbol.shape[1:] == tuple(output.shape)[1:]
            assert dtype == (
                layer.compute_dtype if index < state_outputs else "float32"
            )
        assert arrays(outputs)[0].shape[0] == len(inputs[0])
    keras.config.set_dtype_policy("float32")


def check_policies(
    make_layer: Callable[..., keras.layers.Layer], inputs: list[np.ndarray]
) -> None:
    """Mixed precision is finite and within 2e-2 of float32.

    Inputs of NumPy's default dtype, float64, give what float32 gives, and so
    does a float64 policy (JAX has no float64 by default).
    """
    layer = make_layer(dtype="float32")
    layer(*inputs)
    randomize(layer)
    expected = arrays(layer(*inputs))
    wide = [x.astype("float64") if x.dtype == "float32" else x for x in inputs]
    for actual, wanted in zip(arrays(layer(*wide)), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    if keras.backend.backend() != "jax":
        exact = make_layer(dtype="float64")
        exact(*wide)
        exact.set_weights(layer.get_weights())
        for actual, wanted in zip(arrays(exact(*wide)), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    for policy in POLICIES:
        mixed = make_layer(dtype=policy)
        mixed(*inputs)
        mixed.set_weights(layer.get_weights())
        for actual, wanted in zip(
            arrays(mixed(*inputs)), expected, strict=True
        ):
            assert np.all(np.isfinite(actual))
            scale = max(1.0, np.max(np.abs(wanted)))
            np.testing.assert_allclose(actual, wanted, atol=2e-2 * scale)


def check_compiled(
    make_layer: Callable[[], keras.layers.Layer], inputs: list[np.ndarray]
) -> None:
    """Compiled execution gives what eager execution gives."""
    layer = make_layer()
    model = functional(layer, inputs)
    randomize(model)
    expected = arrays(layer(*inputs))
    # Keras compiles on torch only with a C++ compiler at hand.
    model.compile(jit_compile=keras.backend.backend() != "torch")
    outputs = [arrays(model.predict(inputs, verbose=0))]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        outputs.append(arrays(tf.function(layer)(*inputs)))
    for output in outputs:
        for actual, wanted in zip(output, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
