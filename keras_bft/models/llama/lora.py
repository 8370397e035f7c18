"""LoRA that trains filter and gates beside the low-rank kernels."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_bft._extras import import_extra
from keras_bft.layers import GatedAttention

_GROUP = "filter"


class LoraBackbone(keras_hub.models.Backbone):
    """A keras-hub backbone whose LoRA leaves what is new in it trainable.

    That is what a checkpoint does not have: the filter's weights, a thousandth
    of a model's, or the gates.
    """

    transformer_layers: list[Any]
    prior: Any

    def added_variables(self) -> list[keras.Variable]:
        """Those of the filter (prior, process noise, strength), or the gates.

        Empty for the standard decoder.
        """
        variables = [] if self.prior is None else list(self.prior.variables)
        for layer in self.transformer_layers:
            if self.prior is not None:
                noise = layer.feed_forward.log_process_noise
                variables += [noise, layer.strength]
            elif isinstance(layer.attention, GatedAttention):
                variables += layer.attention.gate_dense.variables
        return variables

    def enable_lora(
        self, rank: int, target_layer_names: Sequence[str] | None = None
    ) -> None:
        """Freezes the kernels and trains low-rank changes of some of them.

        The filter's weights or the gates stay trainable as they were.

        Args:
            rank: Rank of the changes.
            target_layer_names: Names of the projections: `"query"`, `"key"`,
                `"value"`, `"output"` (of attention and feed-forward network),
                `"input"` and `"up"`. Defaults to query and value.
        """
        learned = [v for v in self.added_variables() if v.trainable]
        super().enable_lora(rank, target_layer_names)
        for variable in learned:
            variable.trainable = True
        self._lora_names = (
            self.default_lora_layer_names()
            if target_layer_names is None
            else list(target_layer_names)
        )

    def save_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Writes the low-rank changes and what the checkpoint does not have.

        Args:
            filepath: Ends in `".lora.h5"`.

        Raises:
            ValueError: If LoRA is not enabled, or for another ending.
        """
        h5py = import_extra("h5py", "llm")

        super().save_lora_weights(str(filepath))
        with h5py.File(filepath, "a") as file:
            group = file.create_group(_GROUP)
            group.attrs["rank"] = self._lora_rank
            group.attrs["target_layer_names"] = self._lora_names
            for variable in self.added_variables():
                value = ops.cast(variable.value, "float32")
                group[variable.path] = ops.convert_to_numpy(value)

    def load_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Reads what `save_lora_weights` wrote, and enables LoRA for it.

        Args:
            filepath: The file. One that keras-hub wrote leaves filter and
                gates as they are.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, LoRA is enabled with another
                rank or for other layers, or the file's filter or gates are
                not this model's. The model computes what it did before.
        """
        h5py = import_extra("h5py", "llm")

        try:
            with h5py.File(filepath, "r") as file:
                values = None
                if _GROUP in file:
                    group = file[_GROUP]
                    values = self._read_filter(group, str(filepath))
                    names = [str(n) for n in group.attrs["target_layer_names"]]
                    self._match_lora(int(group.attrs["rank"]), names)
        except (OSError, KeyError, TypeError, RuntimeError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise _damaged(filepath, error) from error
        before = {v.path: ops.copy(v.value) for v in self._lora_variables()}
        try:
            super().load_lora_weights(str(filepath))
        except Exception as error:
            for variable in self._lora_variables():
                # Zeros where LoRA was not enabled: it changes nothing then.
                old = before.get(variable.path)
                variable.assign(
                    ops.zeros_like(variable) if old is None else old
                )
            raise _damaged(filepath, error) from error
        for variable, value in values or []:
            variable.assign(value)

    def _lora_variables(self) -> list[keras.Variable]:
        layers = self._flatten_layers(include_self=False)
        enabled = [x for x in layers if getattr(x, "lora_enabled", False)]
        return [
            variable
            for layer in enabled
            for variable in (layer.lora_kernel_a, layer.lora_kernel_b)
        ]

    def _match_lora(self, rank: int, names: list[str]) -> None:
        if not getattr(self, "_lora_enabled_layers", []):
            self.enable_lora(rank, names)
        elif set(names) != set(self._lora_names):
            raise ValueError(
                "The file changes other layers than this model's LoRA. "
                f"Received: a file for {names}, a model with "
                f"target_layer_names={self._lora_names}"
            )

    def _read_filter(
        self, group: Any, filepath: str
    ) -> list[tuple[keras.Variable, np.ndarray]]:
        found: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if hasattr(item, "shape"):
                found[name] = item

        group.visititems(visit)
        # Before anything is read: a small file can promise large arrays.
        shapes = {name: item.shape for name, item in found.items()}
        expected = {v.path: tuple(v.shape) for v in self.added_variables()}
        if shapes != expected:
            differing = sorted(set(shapes.items()) ^ set(expected.items()))
            raise ValueError(
                "Filter or gates in the file must be those of the model. "
                f"Received: filepath={filepath!r}, which differs in "
                f"{sorted({name for name, _ in differing})}"
            )
        return [
            (v, found[v.path].astype("float32")[()])
            for v in self.added_variables()
        ]


def _damaged(filepath: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(
        "The file must be one that `save_lora_weights` of this model or of "
        f"keras-hub wrote ({type(error).__name__}: {error!s:.200}). Received: "
        f"filepath={str(filepath)!r}"
    )
