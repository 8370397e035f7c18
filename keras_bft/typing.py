"""Type aliases shared by the whole library."""

from typing import Any
from typing import TypeAlias

# A tensor of the current backend, a `KerasTensor` or anything that
# `keras.ops` accepts in its place. No common type exists for these.
Tensor: TypeAlias = Any
