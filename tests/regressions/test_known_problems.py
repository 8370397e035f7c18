"""The page of faults elsewhere names tests that there are."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_backend

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "known_problems.md"


def functions(path):
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_row_has_its_thread_and_its_tests():
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.read_text().splitlines()
        if line.startswith("| [")
    ]
    assert len(rows) >= 30
    for thread, _, here in rows:
        for number, link in re.findall(r"#(\d+)\]\(([^)]*)\)", thread):
            assert re.fullmatch(
                rf"https://github.com/[\w.-]+/[\w.-]+/(issues|pull)/{number}",
                link,
            )
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", here)
        assert named or here.startswith("as #"), thread
        for file, name in named:
            assert name in functions(TESTS / file), f"{file}::{name}"
