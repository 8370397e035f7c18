"""Names of variables, which HDF5 files need to be unique."""

from collections.abc import Iterable
from typing import Any


def name_apart(variables: Iterable[Any]) -> None:
    """Gives `tf.Variable`s of the same name a number each.

    Keras 3 tells variables apart by their path. The name beneath often lacks
    it: all kernels of a subclassed model can be called `model/kernel`. But it
    is by these names that `save_weights("file.h5")` stores them.
    """
    taken: set[str] = set()
    for variable in variables:
        name = variable.name
        number = 0
        while name in taken:
            number += 1
            name = f"{variable.name.removesuffix(':0')}_{number}:0"
        taken.add(name)
        if name != variable.name:
            # A mirrored variable has the name of its first copy.
            getattr(variable, "_primary", variable)._handle_name = name
