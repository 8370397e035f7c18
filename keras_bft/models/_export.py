"""What stands between a recommender and the exporters of Keras."""

from typing import Any

import keras
import numpy as np

from keras_bft._extras import import_extra

_ELSEWHERE = (
    "Save the model as a `.keras` file, load it with KERAS_BACKEND=tensorflow "
    "and export it there."
)


def serving_signature(reads_timestamps: bool) -> list[Any]:
    """Inputs of any batch size and any length, as `call()` takes them."""
    items, times = (
        keras.InputSpec(shape=(None, None), dtype="int32", name=name)
        for name in ("items", "timestamps")
    )
    return [(items, times)] if reads_timestamps else [items]


def check_supported(format: str, takes_top_k: bool = False) -> None:
    """Raises a `NotImplementedError` where what Keras writes does not run."""
    backend = keras.backend.backend()
    reasons = {
        ("jax", "onnx"): "jax2onnx cannot trace a length that is left open",
        ("jax", "openvino"): "OpenVINO cannot read what jax2tf writes",
        ("torch", "tf_saved_model"): "Keras needs torch_xla for it, and leaves "
        "no length open",
    }
    if takes_top_k:
        reasons["jax", "tf_saved_model"] = (
            "TensorFlow 2.21 cannot run the `top_k` that jax2tf writes"
        )
        reasons["torch", "openvino"] = "OpenVINO cannot convert its top k"
    if (backend, format) in reasons:
        raise NotImplementedError(
            f"On {backend} a recommender cannot be exported as {format!r}: "
            f"{reasons[backend, format]}. {_ELSEWHERE} "
            f"Received: format={format!r}"
        )


def backend_options(format: str, reads_timestamps: bool) -> dict[str, Any]:
    """Arguments of `keras.Model.export` that leave batch and length open."""
    backend = keras.backend.backend()
    if backend == "jax" and reads_timestamps:
        # Keras names every open length anew, and items and times then differ.
        shape = "(batch, length)"
        return {"jax2tf_kwargs": {"polymorphic_shapes": [(shape, shape)]}}
    if (backend, format) == ("torch", "torch"):
        return {"dynamic_shapes": open_shapes(reads_timestamps)}
    if (backend, format) == ("tensorflow", "onnx"):
        register_erfc()
    return {}


def open_shapes(reads_timestamps: bool) -> list[Any]:
    """`dynamic_shapes` of `torch.export.export`."""
    torch = import_extra("torch", "torch")

    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    return [((dims, dims) if reads_timestamps else dims,)]


def export_torch_onnx(
    model: Any, filepath: Any, reads_timestamps: bool
) -> None:
    """Writes ONNX by way of `torch.export`.

    Keras takes the TorchScript exporter where a length is open. It traces one
    sequence of one item and writes a graph that ONNX Runtime refuses.
    """
    torch = import_extra("torch", "torch")

    model.eval()
    sample = torch.ones((2, 3), dtype=torch.int32)
    program = torch.export.export(
        model,
        ((sample, sample),) if reads_timestamps else (sample,),
        dynamic_shapes=open_shapes(reads_timestamps),
        strict=False,
    )
    onnx: Any = torch.onnx.export(
        program,
        (),
        dynamo=True,
        verbose=False,
        input_names=["items", "timestamps"][: 1 + reads_timestamps],
        output_names=model.output_names_of_export,
    )
    onnx.save(str(filepath))


def register_erfc() -> None:
    """Teaches tf2onnx the `Erfc` of TensorFlow's GELU, `1 - Erf`."""
    tf_op = import_extra("tf2onnx.handler", "export").tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx: Any, node: Any, **kwargs: Any) -> None:
            shape = ctx.get_shape(node.output[0])
            dtype = ctx.get_dtype(node.output[0])
            erf = ctx.make_node("Erf", list(node.input))
            one = ctx.make_const(f"{node.name}/one", np.array(1.0, "float32"))
            ctx.remove_node(node.name)
            ctx.make_node(
                "Sub",
                [one.output[0], erf.output[0]],
                name=node.name,
                outputs=node.output,
                shapes=[shape],
                dtypes=[dtype],
            )


class ExportableModel(keras.Model):
    """Base of the models that `export` writes with batch and length open.

    A subclass says by `reads_timestamps` whether it reads
    `(items, timestamps)` or items alone.
    """

    reads_timestamps = False
    takes_top_k = False
    output_names_of_export: tuple[str, ...] = ("states",)

    def export(
        self,
        filepath: Any,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Writes the model for a server that has neither Keras nor this.

        As `keras.Model.export` does, with the inputs known: `items`,
        `(batch, length)` int32, and `timestamps`, if the model reads them. Pad
        with 0 at either side, up to `max_length`; a longer one is the
        server's to cut. Any batch size and length run, but with LiteRT those of
        `input_signature`, which has to be given.

        | | TensorFlow | JAX | PyTorch |
        |---|---|---|---|
        | `"tf_saved_model"` | yes | yes | no |
        | `"onnx"` | yes, with tf2onnx | no | yes, with onnxscript |
        | `"openvino"` | yes | no | yes |
        | `"torch"` | no | no | yes, sequences of two items or more |
        | `"litert"` | yes, of one shape | no | not tried |

        OpenVINO computes in bfloat16 where the processor can, unless the
        model is compiled with `{"INFERENCE_PRECISION_HINT": "f32"}`.

        Args:
            filepath: Path; it ends in `.xml`, `.tflite` or `.pt2` with
                OpenVINO, LiteRT and PyTorch.
            format: As above. Defaults to `"tf_saved_model"`.
            verbose: Whether to print a message.
            input_signature: As in `keras.Model.export`. Defaults to any
                batch size and length. For LiteRT
                `[keras.InputSpec(shape=(1, 50), dtype="int32", name="items")]`
                or another shape.
            **kwargs: Other arguments of `keras.Model.export`.

        Raises:
            NotImplementedError: If the format does not work on this backend.
            ValueError: If LiteRT is given no `input_signature`.
        """
        check_supported(format, self.takes_top_k)
        if format == "litert" and input_signature is None:
            # With a length left open TensorFlow writes operations that the
            # LiteRT runtime does not have.
            raise ValueError(
                "LiteRT runs one batch size and length, so `input_signature` "
                "must be given, such as `[keras.InputSpec(shape=(1, 50), "
                'dtype="int32", name="items")]`. Received: '
                f"format={format!r}, input_signature=None"
            )
        # `torch.export` takes what a first call does for the model's own.
        items = np.ones((1, 1), "int32")
        self((items, items) if self.reads_timestamps else items)
        if input_signature is None:
            input_signature = serving_signature(self.reads_timestamps)
            kwargs = backend_options(format, self.reads_timestamps) | kwargs
            if (keras.backend.backend(), format) == ("torch", "onnx"):
                export_torch_onnx(self, filepath, self.reads_timestamps)
                return
        super().export(
            filepath, format, verbose, input_signature=input_signature, **kwargs
        )
