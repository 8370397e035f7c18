"""Tutobooks: a guide's source as cells of prose and code."""

import re
from pathlib import Path
from typing import NamedTuple

_PROSE = '"""\n'


class Cell(NamedTuple):
    """A part of a guide.

    Attributes:
        kind: `"markdown"` or `"code"`.
        text: Its text, without blank lines at the ends.
        line: Line of the source that the text begins on, from 1.
    """

    kind: str
    text: str
    line: int


class Tutobook(NamedTuple):
    """A guide.

    Attributes:
        fields: What stands at its top, such as `"Title"`.
        cells: The rest, in order.
    """

    fields: dict[str, str]
    cells: list[Cell]


def read_tutobook(path: Path) -> Tutobook:
    r"""Reads a guide.

    Prose stands between lines that are three quotation marks and nothing else;
    as it is the text of a Python string, a backslash is written as two. The
    first prose is the guide's fields.

    Args:
        path: The guide.

    Returns:
        Its fields and cells.

    Raises:
        ValueError: If the guide does not begin with its fields, or prose does
            not end.
    """
    lines = path.read_text().splitlines(keepends=True)
    if not lines or lines[0] != _PROSE:
        raise ValueError(
            "A guide must begin with a line of three quotation marks and its "
            f"fields. Received: {path}"
        )
    parts: list[tuple[str, list[str], int]] = []
    kind = "code"
    for number, line in enumerate(lines, 1):
        if line.rstrip("\n") == _PROSE.rstrip("\n"):
            kind = "markdown" if kind == "code" else "code"
            parts.append((kind, [], number + 1))
        else:
            parts[-1][1].append(line)
    if kind == "markdown":
        raise ValueError(f"The last prose must end. Received: {path}")
    cells = []
    for kind, part, first in parts:
        text = "".join(part)
        skipped = len(text) - len(text.lstrip("\n"))
        text = text.strip("\n")
        if kind == "markdown":
            text = text.replace("\\\\", "\\")
        if text:
            cells.append(Cell(kind, text, first + skipped))
    fields = dict(
        re.findall(r"^([A-Z][\w ]+): (.+)$", cells[0].text, re.MULTILINE)
    )
    return Tutobook(fields, cells[1:])
