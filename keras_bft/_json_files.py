"""JSON files that others wrote, believed in nothing they say."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path, max_bytes: int | None = None) -> dict[str, Any]:
    """Reads a file with a JSON object in which no key stands twice.

    Args:
        path: The file, in UTF-8, with or without a byte order mark.
        max_bytes: Largest size. A parsed file takes up to twenty times its
            size in memory. Defaults to `None`: any size.

    Returns:
        The object.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is larger or holds anything else.
    """
    size = path.stat().st_size
    if max_bytes is not None and size > max_bytes:
        raise ValueError(
            f"The file must have at most {max_bytes} bytes. Received: "
            f"file={str(path)!r} of {size} bytes"
        )
    return parse_json(path.read_bytes(), path)


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """Parses a JSON object in which no key stands twice.

    Args:
        content: The text, in UTF-8, with or without a byte order mark.
        path: File it is from, for the errors.

    Returns:
        The object.

    Raises:
        ValueError: If the text is anything else.
    """
    try:
        value = json.loads(
            content.decode("utf-8-sig"), object_pairs_hook=_unique
        )
        # Escapes can make halves of characters, which no text may hold.
        if b"\\ud" in content.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"The file must hold valid JSON ({error}). Received: "
            f"file={str(path)!r}"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(
            f"The file must hold a JSON object, not {type(value).__name__}. "
            f"Received: file={str(path)!r}"
        )
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r:.200} stands there twice")
            seen.add(key)
    return found
