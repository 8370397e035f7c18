"""Imports of optional packages, with an error that names the extra."""

import importlib
from types import ModuleType


def import_extra(module_name: str, extra: str) -> ModuleType:
    """Imports a module that an optional dependency brings.

    Args:
        module_name: Name of the module, such as `"pandas"`.
        extra: Extra of `keras-bft` that installs it, such as `"data"`.

    Returns:
        The module.

    Raises:
        ImportError: If the module is not installed.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise
        raise ImportError(
            f"This needs the package `{error.name}`. Install it with "
            f'`pip install "keras-bft[{extra}]"`.'
        ) from error
