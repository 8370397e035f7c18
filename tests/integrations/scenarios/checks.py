"""What checks have in common."""

import os
from collections.abc import Callable
from pathlib import Path

# For the report, and for files that a later process reads.
FOLDER = Path(os.environ.get("CHECK_FOLDER", "."))


def expect_error(
    kind: type[Exception], text: str, function: Callable, *arguments: object
) -> str:
    """Calls a function that must raise, and returns the message."""
    try:
        function(*arguments)
    except kind as error:
        message = str(error)
    else:
        raise AssertionError(f"No {kind.__name__}")
    assert text in message, message
    return message
