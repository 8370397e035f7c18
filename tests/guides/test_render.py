import base64
import json

import pytest

from tests.guides.tools import read_tutobook
from tests.guides.tools import render

pytestmark = pytest.mark.any_backend

GUIDE = '''"""
Title: A guide
Description: Two and two.
"""

"""
## Sums

A fraction: $\\\\frac{1}{2}$.
"""

import matplotlib.pyplot as plt

TEXT = """several
lines"""


def double(x):
    """Two times a number."""
    return 2 * x

"""
Now a picture.
"""

print(double(2), TEXT, __name__)
plt.plot([1, 2])
plt.show()
'''


@pytest.fixture
def guide(tmp_path):
    path = tmp_path / "a_guide.py"
    path.write_text(GUIDE)
    return path


def test_reads_prose_and_code(guide):
    book = read_tutobook(guide)
    assert book.fields == {"Title": "A guide", "Description": "Two and two."}
    kinds = [cell.kind for cell in book.cells]
    assert kinds == ["markdown", "code", "markdown", "code"]
    assert book.cells[0].text == "## Sums\n\nA fraction: $\\frac{1}{2}$."
    lines = GUIDE.splitlines()
    for cell in book.cells[1::2]:
        assert lines[cell.line - 1] == cell.text.splitlines()[0]


@pytest.mark.parametrize(
    "text, message",
    [
        ("import os\n", "must begin with"),
        ('"""\nTitle: A\n"""\n\n"""\nopen\n', "must end"),
    ],
)
def test_refuses_what_is_no_guide(tmp_path, text, message):
    path = tmp_path / "guide.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_tutobook(path)


def test_renders_output_and_figures(guide, tmp_path):
    output = tmp_path / "rendered"
    render.render(guide, output)
    text = (output / "a_guide.md").read_text()
    assert text.startswith("# A guide\n\n*Two and two.*\n\n## Sums\n")
    assert "```text\n4 several\nlines __main__\n```" in text
    assert "![A guide, figure 1](a_guide_files/figure-1.png)" in text
    picture = (output / "a_guide_files" / "figure-1.png").read_bytes()
    assert picture.startswith(b"\x89PNG")

    notebook = json.loads((output / "a_guide.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == 5
    assert [cell["execution_count"] for cell in cells[2::2]] == [1, 2]
    stream, figure = cells[4]["outputs"]
    assert "".join(stream["text"]) == "4 several\nlines __main__\n"
    assert base64.b64decode(figure["data"]["image/png"]) == picture


def test_says_which_guide_failed(guide, tmp_path, capfd):
    guide.write_text(GUIDE + "\n1 / 0\n")
    with pytest.raises(RuntimeError, match="a_guide"):
        render.render(guide, tmp_path)
    line = len(GUIDE.splitlines()) + 2
    assert f"line {line}" in capfd.readouterr().err
