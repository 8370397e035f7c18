"""Lets griffe read the sections of Keras docstrings.

Keras writes `Call arguments:` for the arguments of a layer's call, and examples
that stand below their heading without being indented.
"""

import re
from typing import Any

import griffe

_CALL_ARGUMENTS = re.compile(r"^Call arguments:$", re.MULTILINE)
_EXAMPLE = re.compile(r"^Examples?:\n(?=\n\S)", re.MULTILINE)
# From a prompt to the next blank line.
_DOCTEST = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class KerasDocstrings(griffe.Extension):
    """Rewrites docstrings as griffe reads them."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        text = _CALL_ARGUMENTS.sub("Other Parameters: Call arguments:", text)
        text = _EXAMPLE.sub("**Example:**\n", text)
        text = _DOCTEST.sub(r"\1```pycon\n\g<0>\n\1```", text)
        obj.docstring.value = text
