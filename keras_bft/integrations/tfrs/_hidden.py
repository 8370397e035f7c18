"""What keeps Keras 3 objects out of TensorFlow's tracking."""

from typing import Any


class Hidden:
    """Holds an object where TensorFlow's tracking does not look."""

    def __init__(self, value: Any) -> None:
        self.value = value
