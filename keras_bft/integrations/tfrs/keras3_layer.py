"""A Keras 3 layer or model as a layer of `tf.keras` 2."""

from typing import Any

import keras
import tensorflow as tf

from keras_bft.integrations.tfrs._hidden import Hidden
from keras_bft.integrations.tfrs._names import name_apart
from keras_bft.integrations.tfrs._regularization import regularization_layer


class Keras3Layer(tf.keras.layers.Layer):
    """Puts a Keras 3 layer or model into a `tf.keras` 2 model.

    The layer shows the `tf.Variable`s beneath the module's Keras 3 variables as
    its own, so that optimizers, `tf.train.Checkpoint`, weight files, strategies
    and SavedModel treat them as they do any others. States of random seeds are
    among them, so a resumed training goes on with the same dropout.

    - Variables are those that the module has at the time: what is frozen in
      Keras 3 is frozen here, and LoRA can be enabled after wrapping. As with
      any change of this kind, call `compile()` again afterwards.
    - Losses of the module, its regularizers and `add_loss`, are losses of this
      layer. A regularizer of a variable that several wrapped modules share
      counts once in a model that holds them.
    - A mask that comes with the inputs reaches the module. None leaves it: the
      outputs of a tower have no time axis to mask.
    - Outputs are cast to this layer's compute dtype, float32 unless `dtype` or
      the policy of `tf.keras` says otherwise, from whatever the policy of the
      module computes in.

    Lookup tables are not variables, and stay behind: put `StringLookup` of
    `tf.keras` before this layer instead of one of Keras 3 into the module.

    A module that is not built yet is built at the first call. Under a
    `tf.distribute` strategy that is too late; there build it in the strategy's
    scope, as all its variables have to be made there.

    The layer is not registered for serialization, on purpose: loaded by
    `tf.keras`, two layers that share a table would become two tables. Save
    weights with `tf.train.Checkpoint` or `save_weights`, serving models with
    `tf.saved_model.save`, and the trained tower itself with
    `layer.module.save("tower.keras")`, which every Keras 3 backend loads.

    Args:
        module: A Keras 3 layer or model. It takes one argument besides
            `training`, a tensor or a nested structure of tensors.
        name: Name of the layer. Defaults to that of the module.
        **kwargs: Arguments of `tf.keras.layers.Layer`.

    Call arguments:
        inputs: What the module takes.
        training: Whether to use dropout. Defaults to `False`; `fit()` of a
            Keras 2 model passes it on.

    Returns:
        What the module returns.

    Raises:
        TypeError: If `module` is not a Keras 3 layer or model.

    Example:

    >>> tower = keras_bft.models.SASRec(num_items=20, max_length=8)
    >>> layer = Keras3Layer(tower)
    >>> layer(tf.constant([[3, 5, 7, 0], [2, 4, 6, 8]])).shape
    TensorShape([2, 4, 64])
    >>> len(layer.trainable_variables) == len(tower.trainable_variables)
    True
    >>> layer.module is tower
    True
    """

    def __init__(
        self,
        module: keras.layers.Layer,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(module, keras.layers.Layer):
            hint = ""
            if isinstance(module, tf.keras.layers.Layer):
                hint = " One of `tf.keras` 2 is used as it is."
            raise TypeError(
                "`module` must be a Keras 3 layer or model."
                f"{hint} Received: module={module!r}"
            )
        # The module casts its inputs itself, by its own policy.
        kwargs.setdefault("autocast", False)
        super().__init__(name=name or module.name, **kwargs)
        self.supports_masking = True
        self._hidden = Hidden(module)
        # By the names that they have in files. TensorFlow tracks these.
        self._module_variables: dict[str, tf.Variable] = {}
        self._regularization_layers: list[tf.keras.layers.Layer] = []
        self._track_variables_of_module()

    @property
    def module(self) -> keras.layers.Layer:
        """The Keras 3 layer or model."""
        return self._hidden.value

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not self.module.built:
            self._build_module(inputs)
        outputs = self.module(inputs, training=training)
        self._track_variables_of_module()
        for loss in self._losses_of_call():
            self.add_loss(loss)
        # A new tensor, since the mask of Keras 3 is an attribute of the old.
        return tf.nest.map_structure(self._output, outputs)

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Returns `None`: no mask leaves the module."""
        return None

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        self._track_variables_of_module()
        if not self.trainable:
            return []
        return self._dedup_weights(
            variable.value for variable in self.module.trainable_variables
        )

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        self._track_variables_of_module()
        if self.trainable:
            variables = self.module.non_trainable_variables
        else:
            variables = self.module.variables
        return self._dedup_weights(variable.value for variable in variables)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "module": keras.saving.serialize_keras_object(self.module),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Keras3Layer":
        module = keras.saving.deserialize_keras_object(config["module"])
        return cls(**{**config, "module": module})

    def _build_module(self, inputs: Any) -> None:
        """Makes the variables of the module, outside of any graph."""
        if tf.distribute.has_strategy() and tf.distribute.get_replica_context():
            raise ValueError(
                "Under a distribution strategy the module must be built in the "
                "strategy's scope, before training. Call "
                f"`layer.module.build(...)` there. Received: {self.module!r}, "
                "which is not built"
            )
        specs = tf.nest.map_structure(
            lambda x: keras.KerasTensor(x.shape, dtype=x.dtype.name), inputs
        )
        with tf.init_scope():
            self.module(specs)

    def _losses_of_call(self) -> list[Any]:
        """Losses that the module added in its last call."""
        losses = self.module.losses
        # Keras appends those of the regularizers, which are added elsewhere.
        regularized = [
            variable
            for variable in self.module.trainable_weights
            if variable.regularizer is not None
        ]
        return losses[: len(losses) - len(regularized)]

    def _output(self, output: Any) -> Any:
        if output.dtype.is_floating:
            output = tf.cast(output, self.compute_dtype)
        return tf.identity(output)

    # === Variables ===

    def _track_variables_of_module(self) -> None:
        """Shows the variables that the module has got since the last time."""
        if not self.module.built:
            # What there is before could not keep its place in the order.
            return
        known = {id(value) for value in self._module_variables.values()}
        for variable in self.module.variables:
            value = variable.value
            if id(value) in known:
                continue
            known.add(id(value))
            # A name that no variable to come can change. Keras numbers those
            # without a name throughout the process, which says nothing.
            name = variable.name.rstrip("_0123456789")
            name = f"{len(self._module_variables)}_{name}"
            self._module_variables[name] = value
            if variable.regularizer is not None:
                self._regularization_layers.append(
                    regularization_layer(variable)
                )
        name_apart(self._module_variables.values())

    def _trackable_children(
        self, save_type: str = "checkpoint", **kwargs: Any
    ) -> dict[str, Any]:
        self._track_variables_of_module()
        return super()._trackable_children(save_type, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        """Writes the variables to a file of `tf.keras`."""
        self._track_variables_of_module()
        for name, value in self._module_variables.items():
            store[name] = value.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads the variables from a file of `tf.keras`."""
        self._track_variables_of_module()
        names = list(self._module_variables)
        if set(store.keys()) != set(names):
            raise ValueError(
                f"The file does not fit `{self.name}`, which has to be built "
                f"and alike. Expected: {names}. "
                f"Received: {list(store.keys())}"
            )
        for name, value in self._module_variables.items():
            value.assign(store[name])
