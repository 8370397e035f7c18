"""Device meshes as they come from users: checks and the items' layout."""

from typing import Any

import keras


def check_mesh(device_mesh: Any, *axes: str) -> None:
    """Raises a `ValueError` unless the mesh is one and has the axes."""
    if not isinstance(device_mesh, keras.distribution.DeviceMesh):
        raise ValueError(
            "`device_mesh` must be a `keras.distribution.DeviceMesh`. "
            f"Received: device_mesh={device_mesh!r}"
        )
    for name in axes:
        if name not in device_mesh.axis_names:
            raise ValueError(
                f"The mesh has no axis {name!r}. Received: a device_mesh with "
                f"axis_names={device_mesh.axis_names}"
            )


def item_layout_map(device_mesh: Any, model_dim: str, data_dim: str) -> Any:
    """See `SequentialRecommender.get_layout_map`."""
    check_mesh(device_mesh, model_dim, data_dim)
    layouts = keras.distribution.LayoutMap(device_mesh)
    # Beside features the table is that of a layer inside.
    layouts[r"(.*/)?item_embedding/(.+/)?embeddings"] = (None, model_dim)
    return layouts


def check_table_width(embedding_dim: int) -> None:
    """Raises a `ValueError` if the distribution cannot split the table."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return
    layout = distribution.get_tensor_layout("item_embedding/embeddings")
    mesh = distribution.device_mesh
    for name, size in zip(mesh.axis_names, mesh.shape, strict=True):
        if layout and layout.axes[-1] == name and embedding_dim % size:
            raise ValueError(
                "The distribution splits the item table by channels, so "
                f"`embedding_dim` must be a multiple of {size}, the size of "
                f"the mesh's axis {name!r}. "
                f"Received: embedding_dim={embedding_dim}"
            )
