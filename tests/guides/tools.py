"""The guides and what renders them, which are no package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "guides"))

import render  # noqa: E402
from _notebook import to_notebook  # noqa: E402
from _tutobook import read_tutobook  # noqa: E402

__all__ = ["GUIDES", "ROOT", "read_tutobook", "render", "to_notebook"]

GUIDES = [
    path
    for path in sorted((ROOT / "guides").glob("*.py"))
    if path.stem != "render" and not path.stem.startswith("_")
]
