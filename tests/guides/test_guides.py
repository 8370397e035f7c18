"""Every guide runs as it stands, in a process of its own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "guides").glob("*.py"))

pytestmark = pytest.mark.any_backend


def header(guide: Path) -> dict[str, str]:
    """The fields at the top of a guide."""
    text = ast.get_docstring(ast.parse(guide.read_text())) or ""
    return dict(re.findall(r"^([A-Z][\w ]+): (.+)$", text, re.MULTILINE))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_runs(guide, tmp_path):
    fields = header(guide)
    assert {"Title", "Author", "Date created", "Description"} <= set(fields)
    assert fields["Author"] == "the keras_bft developers"
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    }
    if "Backend" in fields:
        environment["KERAS_BACKEND"] = fields["Backend"].lower()
    # XLA need not optimise what runs once.
    if environment.get("KERAS_BACKEND") == "jax":
        environment.setdefault(
            "XLA_FLAGS", "--xla_backend_optimization_level=0"
        )
    result = subprocess.run(
        [sys.executable, guide],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert not list(tmp_path.iterdir()), "a guide leaves files behind"


def test_finds_the_guides():
    assert "distributed_recommender" in {guide.stem for guide in GUIDES}
