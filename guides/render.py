r"""Runs guides and renders each to Markdown and to a notebook.

    python guides/render.py --output docs/guides
    python guides/render.py --output docs/guides filter_in_five_minutes

For a guide `name.py` the folder receives `name.md` and `name.ipynb`, both with
what the code printed and its figures, and the figures in `name_files/`. The
backend is that of the guide, if it asks for one, else `KERAS_BACKEND`, else
JAX. With `--quick` the guides run at the size of the tests, where numbers mean
nothing. Needs matplotlib (the extra `viz`).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _notebook import to_notebook
from _tutobook import Tutobook
from _tutobook import read_tutobook

HERE = Path(__file__).resolve().parent
# In the order in which they are to be read.
GUIDES = (
    "filter_in_five_minutes",
    "kalman_filter_you_can_check",
    "cold_start_recommendation",
    "bert4rec_and_hstu",
    "tfrs_retrieval_and_serving",
    "noisy_fine_tuning",
    "distributed_recommender",
    "how_the_mathematics_was_chosen",
)


def to_markdown(
    book: Tutobook, results: Sequence[dict[str, Any]], files: str
) -> str:
    """Returns a guide as Markdown.

    Args:
        book: The guide.
        results: What its cells of code showed.
        files: Name of the folder of its figures.
    """
    title = book.fields["Title"]
    parts = [f"# {title}", f"*{book.fields['Description']}*"]
    remaining = iter(results)
    number = 0
    for cell in book.cells:
        if cell.kind == "markdown":
            parts.append(cell.text)
            continue
        parts.append(f"```python\n{cell.text}\n```")
        result = next(remaining)
        if result["text"]:
            parts.append(f"```text\n{result['text']}```")
        for name in result["figures"]:
            number += 1
            parts.append(f"![{title}, figure {number}]({files}/{name})")
    return "\n\n".join(parts) + "\n"


def render(guide: Path, output: Path, quick: bool = False) -> None:
    """Runs a guide and writes what it renders to.

    Args:
        guide: The guide.
        output: Folder to write to.
        quick: Whether to run it at the size of the tests.

    Raises:
        RuntimeError: If the guide fails.
    """
    book = read_tutobook(guide)
    environment = dict(os.environ)
    environment.setdefault("KERAS_BACKEND", "jax")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "Backend" in book.fields:
        environment["KERAS_BACKEND"] = book.fields["Backend"].lower()
    if quick:
        environment["KERAS_BFT_QUICK"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, HERE / "_execute.py", guide, folder]
        if subprocess.run(command, env=environment).returncode:
            raise RuntimeError(f"The guide {guide} failed.")
        results = json.loads(Path(folder, "results.json").read_text())
        output.mkdir(parents=True, exist_ok=True)
        notebook = to_notebook(book, results, Path(folder))
        target = output / f"{guide.stem}.ipynb"
        target.write_text(json.dumps(notebook, indent=1) + "\n")
        files = output / f"{guide.stem}_files"
        shutil.rmtree(files, ignore_errors=True)
        names = [name for result in results for name in result["figures"]]
        if names:
            files.mkdir()
        for name in names:
            shutil.copy(Path(folder, name), files / name)
        text = to_markdown(book, results, files.name)
        (output / f"{guide.stem}.md").write_text(text)


def main(argv: Sequence[str] | None = None) -> None:
    """Renders what the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Runs guides and renders them to Markdown and notebooks."
    )
    parser.add_argument("names", nargs="*", help="guides; all if not given")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(GUIDES))
    if unknown:
        parser.error(f"no such guides: {unknown}; there are {list(GUIDES)}")
    for name in arguments.names or GUIDES:
        start = time.monotonic()
        render(HERE / f"{name}.py", arguments.output, arguments.quick)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
