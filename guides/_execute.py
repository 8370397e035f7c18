"""Runs the code of one guide, cell by cell, and keeps what it shows.

    python guides/_execute.py guide.py folder

The folder receives the figures and `results.json`: for each cell of code what
it printed and the names of its figures. A process of its own for each guide, as
a process can have one backend.
"""

import contextlib
import io
import json
import sys
import types
from pathlib import Path

import matplotlib
from _tutobook import read_tutobook

_DPI = 100


def execute(guide: Path, folder: Path) -> list[dict[str, object]]:
    """Runs a guide.

    Args:
        guide: The guide.
        folder: Where figures go.

    Returns:
        For each cell of code its `"text"` and `"figures"`.
    """
    matplotlib.use("agg")
    from matplotlib import pyplot

    # The names of a guide are those of a program.
    program = types.ModuleType("__main__")
    program.__file__ = str(guide)
    sys.modules["__main__"] = program
    results: list[dict[str, object]] = []
    number = 0
    for cell in read_tutobook(guide).cells:
        if cell.kind != "code":
            continue
        # So that errors name the line of the guide.
        source = "\n" * (cell.line - 1) + cell.text
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(guide), "exec"), program.__dict__)
        figures = []
        for place in pyplot.get_fignums():
            number += 1
            name = f"figure-{number}.png"
            pyplot.figure(place).savefig(folder / name, dpi=_DPI)
            figures.append(name)
        pyplot.close("all")
        text = "".join(
            line.rstrip() + "\n" for line in printed.getvalue().splitlines()
        )
        results.append({"text": text, "figures": figures})
    return results


if __name__ == "__main__":
    path, target = map(Path, sys.argv[1:])
    outcome = execute(path, target)
    (target / "results.json").write_text(json.dumps(outcome))
