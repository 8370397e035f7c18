"""Opening data files, compressed or not."""

import gzip
import zlib
from pathlib import Path


def read_bytes(path: Path) -> bytes:
    """Reads a whole file, unpacked if its name ends in `.gz`.

    Args:
        path: File to read.

    Returns:
        Its bytes, without a UTF-8 byte order mark.

    Raises:
        ValueError: If a `.gz` file is not a whole gzip file, or the file has
            nothing in it.
    """
    if path.suffix.lower() == ".gz":
        try:
            with gzip.open(path) as file:
                data = file.read()
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"The file is not a whole gzip file ({error}). Received: "
                f"source={str(path)!r}"
            ) from error
    else:
        data = path.read_bytes()
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise ValueError(
            "The file is empty: it holds no interactions. Received: "
            f"source={str(path)!r}"
        )
    return data
