"""Makes the pages of the site, as a hook of mkdocs.

The front page is the README; each subpackage has a page of the API; changes and
how to contribute are the repository's. Guides are those that guides/render.py
has rendered to docs/guides. Nothing is imported, so no backend has to be
installed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
# Pages of the API, in their order.
PACKAGES = (
    "keras_bft",
    "keras_bft.layers",
    "keras_bft.models",
    "keras_bft.losses",
    "keras_bft.data",
    "keras_bft.evaluation",
    "keras_bft.metrics",
    "keras_bft.training",
    "keras_bft.diagnostics",
    "keras_bft.ops",
    "keras_bft.integrations.tfrs",
)
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> None:
    """Lists all pages."""
    navigation: list[Any] = [{"Home": "index.md"}]
    guides = [{title: page} for page, title in rendered_guides().items()]
    if guides:
        navigation.append({"Guides": guides})
    reference: list[Any] = ["api/index.md"]
    reference += [{package: api_page(package)} for package in PACKAGES]
    navigation.append({"API reference": reference})
    navigation.append({"What goes wrong elsewhere": "known_problems.md"})
    navigation.append({"Changes": "changelog.md"})
    navigation.append({"Contributing": "contributing.md"})
    config.nav = navigation


def on_files(files: Any, config: Any) -> None:
    """Adds the pages that are made and the pictures that they show."""
    index = ["# API reference\n"]
    for package in PACKAGES:
        path = ROOT.joinpath(*package.split("."), "__init__.py")
        summary = ast.get_docstring(ast.parse(path.read_text())) or ""
        blocks = [f"::: {origin}" for origin in public_objects(path, package)]
        text = "\n\n".join([f"# {package}", summary, *blocks])
        add(files, config, api_page(package), text)
        link = api_page(package).removeprefix("api/")
        first_line = summary.partition("\n")[0]
        index.append(f"- [`{package}`]({link}): {first_line}")
    add(files, config, "api/index.md", "\n".join(index))
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        add(files, config, page, _LINK.sub(linked, text))
        for picture in pictures(text):
            if files.get_file_from_path(picture) is None:
                add(files, config, picture, (ROOT / picture).read_bytes())


def add(files: Any, config: Any, page: str, content: str | bytes) -> None:
    """Adds a file to the site."""
    files.append(File.generated(config, page, content=content))


def api_page(package: str) -> str:
    """Page of a package."""
    name = package.removeprefix("keras_bft.").replace(".", "_")
    return f"api/{name}.md"


def rendered_guides() -> dict[str, str]:
    """Titles of the guides that are rendered, by their pages, in order."""
    program = ast.parse((ROOT / "guides" / "render.py").read_text())
    [names] = [
        ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and name_of(node) == "GUIDES"
    ]
    paths = [ROOT / "docs" / "guides" / f"{name}.md" for name in names]
    return {
        f"guides/{path.name}": path.read_text().split("\n")[0].lstrip("# ")
        for path in paths
        if path.exists()
    }


def public_objects(path: Path, package: str) -> list[str]:
    """Where the public names of a package are defined.

    Args:
        path: Its `__init__.py`.
        package: Its name.

    Returns:
        Names with their modules, in the order of `__all__`, if there is one.

    Raises:
        ValueError: If `__all__` has a name that the file does not import.
    """
    origins: dict[str, str] = {}
    listed = None
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                origins[name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Assign):
            name = name_of(node)
            if name == "__all__":
                listed = ast.literal_eval(node.value)
            elif name == "_LLAMA":
                # Imported only when asked for.
                for name, module in ast.literal_eval(node.value).items():
                    origins[name] = f"{package}.llama.{module}.{name}"
    names = [
        name
        for name in (sorted(origins) if listed is None else listed)
        # Subpackages have pages of their own.
        if not name.startswith("_") and f"{package}.{name}" not in PACKAGES
    ]
    missing = sorted(set(names) - set(origins))
    if missing:
        raise ValueError(f"{path} does not say where {missing} come from.")
    return [origins[name] for name in names]


def name_of(assignment: ast.Assign) -> str | None:
    """The name that is assigned to."""
    return getattr(assignment.targets[0], "id", None)


def linked(match: re.Match[str]) -> str:
    """A link of a page at the root of the repository, as it holds here.

    What has no page here keeps its text alone.
    """
    mark, label, target = match.groups()
    if mark or "://" in target or target.startswith("#"):
        return match[0]
    guide = f"guides/{Path(target).stem}.md"
    if target.startswith("guides/") and guide in rendered_guides():
        return f"[{label}]({guide})"
    page = PAGES.get(target)
    return f"[{label}]({page})" if page else label


def pictures(text: str) -> Iterator[str]:
    """Pictures of the repository that a page shows."""
    for mark, _, target in _LINK.findall(text):
        if mark and "://" not in target:
            yield target
