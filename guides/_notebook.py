"""A guide as a Jupyter notebook, format 4.5."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _tutobook import Tutobook


def to_notebook(
    book: Tutobook, results: Sequence[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """Returns a notebook as the dictionary that its JSON holds.

    Args:
        book: The guide.
        results: What `_execute.execute` returned.
        folder: Where the figures are.
    """
    title = f"# {book.fields['Title']}\n\n{book.fields['Description']}"
    cells: list[dict[str, Any]] = [_cell("markdown", title, 0)]
    count = 0
    for number, cell in enumerate(book.cells, 1):
        made = _cell(cell.kind, cell.text, number)
        if cell.kind == "code":
            result = results[count]
            count += 1
            made["execution_count"] = count
            made["outputs"] = _outputs(result, folder)
        cells.append(made)
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    return {
        "cell_type": kind,
        "id": f"cell-{number}",
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }


def _outputs(result: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if result["text"]:
        lines = result["text"].splitlines(keepends=True)
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": lines}
        )
    for name in result["figures"]:
        image = base64.b64encode((folder / name).read_bytes()).decode()
        outputs.append(
            {
                "data": {"image/png": image},
                "metadata": {},
                "output_type": "display_data",
            }
        )
    return outputs
