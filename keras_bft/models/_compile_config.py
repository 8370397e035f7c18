"""How a compiled model is written down, for every backend to read."""

from typing import Any

import keras

# Keras has subclasses of its optimizers for PyTorch, and writes those down.
# Elsewhere they cannot be imported, or bring PyTorch along.
_OF_TORCH = "keras.src.backend.torch.optimizers."


class PortableCompilation:
    """A model whose file any backend compiles as it was compiled when saved.

    Stands before a `keras.Model` among the bases. It is none itself, since
    Keras changes the bases of models that are made as Functional ones.
    """

    built: bool
    optimizer: Any
    trainable_variables: list[Any]

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self._jit_compile_argument = kwargs.get("jit_compile", "auto")
        super().compile(*args, **kwargs)  # type: ignore[misc]

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the compile arguments, for any backend.

        `jit_compile` is as it was given: Keras keeps what `"auto"` came to on
        this backend, and a model saved on JAX would then compile on torch
        too, which takes minutes.
        """
        given = super().get_compile_config()  # type: ignore[misc]
        config: dict[str, Any] = portable(given)
        if config:
            config["jit_compile"] = self._jit_compile_argument
            config["build_optimizer"] = getattr(self.optimizer, "built", False)
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was compiled when saved."""
        config = portable(config)
        build = config.pop("build_optimizer", True)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if build and self.built:
            self.optimizer.build(self.trainable_variables)


def portable(config: Any) -> Any:
    """A compile configuration whose optimizers are those of `keras.optimizers`.

    Args:
        config: What `get_compile_config` of Keras returns, or a part of it.
    """
    if isinstance(config, (list, tuple)):
        return type(config)(portable(part) for part in config)
    if not isinstance(config, dict):
        return config
    config = {key: portable(part) for key, part in config.items()}
    if str(config.get("module")).startswith(_OF_TORCH):
        config |= {"module": "keras.optimizers", "registered_name": None}
    return config
