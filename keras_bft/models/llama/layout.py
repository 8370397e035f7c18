"""Which axis of which weight is split over the devices."""

from typing import Any

import keras

from keras_bft.models._device_mesh import check_mesh

# Axes of a kernel are (inputs, outputs).
_SPLIT_OUTPUTS = (
    r"decoder_layer.*/attention/(query|key|value|gate)",
    r"decoder_layer.*/feed_forward/(input|up)",
)
_SPLIT_INPUTS = (
    r"decoder_layer.*/attention/output",
    r"decoder_layer.*/feed_forward/output",
)


def layout_map(device_mesh: Any, model_dim: str, data_dim: str) -> Any:
    """Lays out a `BFTLlamaBackbone` for model parallelism.

    Heads and hidden channels are split over the devices, so a layer's sums
    meet once after the attention and once after the feed-forward network. All
    that is not named is on every device: norms, and the weights of the filter.

    Args:
        device_mesh: A `keras.distribution.DeviceMesh`.
        model_dim: Axis of the mesh that splits weights.
        data_dim: Axis of the mesh that splits batches.

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ValueError: If the mesh is none or lacks an axis.
    """
    check_mesh(device_mesh, model_dim, data_dim)
    layouts = keras.distribution.LayoutMap(device_mesh)
    # By vocabulary: a row is read whole, and so is a column of the head.
    layouts["token_embedding/embeddings"] = (model_dim, None)
    layouts["token_embedding/reverse_embeddings"] = (None, model_dim)
    for path in _SPLIT_OUTPUTS:
        layouts[f"{path}/kernel"] = (None, model_dim)
        layouts[f"{path}/bias"] = (model_dim,)
    for path in _SPLIT_INPUTS:
        layouts[f"{path}/kernel"] = (model_dim, None)
    return layouts
