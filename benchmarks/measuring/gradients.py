"""One forward and backward pass of a model, compiled where its backend does."""

import math
import os
from collections.abc import Callable

import keras
import numpy as np

from measuring.memory import growth

Step = Callable[[], object]


def make_step(
    model: keras.layers.Layer, inputs: list[np.ndarray], training: bool = False
) -> tuple[Step, Callable[[], float]]:
    """A step, and what tells the bytes it holds besides inputs and results.

    The step returns the gradients of a mean square of the first output with
    respect to weights and inputs. It is compiled on JAX and TensorFlow and
    eager on PyTorch. JAX knows the bytes from its compiler; of TensorFlow and
    PyTorch it is the growth of the process over a call. TensorFlow keeps what
    is freed, and the growth is unknown, unless `TF_ENABLE_ONEDNN_OPTS=0` is in
    the environment.
    """
    make = {
        "jax": _jax_step,
        "tensorflow": _tensorflow_step,
        "torch": _torch_step,
    }
    return make[keras.backend.backend()](model, inputs, training)


def _first(outputs: object) -> object:
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def _jax_step(
    model: keras.layers.Layer, inputs: list[np.ndarray], training: bool
) -> tuple[Step, Callable[[], float]]:
    import jax
    import jax.numpy as jnp

    fixed = [v.value for v in model.non_trainable_variables]

    def loss(trainable: list, inputs: list) -> object:
        outputs, _ = model.stateless_call(
            trainable, fixed, *inputs, training=training
        )
        return jnp.mean(jnp.square(_first(outputs)))

    arguments = (
        [v.value for v in model.trainable_variables],
        [jnp.asarray(x) for x in inputs],
    )
    compiled = (
        jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*arguments).compile()
    )

    def step() -> object:
        return jax.block_until_ready(compiled(*arguments))

    return step, lambda: compiled.memory_analysis().temp_size_in_bytes


def _tensorflow_step(
    model: keras.layers.Layer, inputs: list[np.ndarray], training: bool
) -> tuple[Step, Callable[[], float]]:
    import tensorflow as tf

    tensors = [tf.constant(x) for x in inputs]
    variables = [v.value for v in model.trainable_variables]

    @tf.function(jit_compile=True, autograph=False)
    def gradients(*tensors: tf.Tensor) -> list:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = model(*tensors, training=training)
            loss = tf.reduce_mean(tf.square(_first(outputs)))
        return tape.gradient(
            loss,
            [*variables, *tensors],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )

    def step() -> object:
        return [gradient.numpy() for gradient in gradients(*tensors)[-1:]]

    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0":
        return step, lambda: math.nan
    return step, lambda: growth(step)


def _torch_step(
    model: keras.layers.Layer, inputs: list[np.ndarray], training: bool
) -> tuple[Step, Callable[[], float]]:
    import torch

    # Where Keras has its tensors: on the GPU, if there is one.
    tensors = [keras.ops.convert_to_tensor(x).requires_grad_() for x in inputs]
    wanted = [*(v.value for v in model.trainable_variables), *tensors]

    def step() -> object:
        loss = torch.mean(torch.square(_first(model(*tensors))))
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        if loss.is_cuda:
            torch.cuda.synchronize()
        return found

    return step, lambda: growth(step)
