"""Opening data files, compressed or not."""

from pathlib import Path

from keras_bft._packed_files import read_gzip


def read_bytes(path: Path, argument: str = "source") -> bytes:
    """Reads a whole text file, unpacked if its name ends in `.gz`.

    Args:
        path: File to read.
        argument: Argument that named it, for errors.

    Returns:
        Its bytes, without a UTF-8 byte order mark.

    Raises:
        ValueError: If a `.gz` file is not a whole gzip file or unpacks to more
            than two hundred times its size (and 64 MiB), or the file has
            nothing or a NUL byte in it.
    """
    is_packed = path.suffix.lower() == ".gz"
    data = read_gzip(path, argument) if is_packed else path.read_bytes()
    data = data.removeprefix(b"\xef\xbb\xbf")
    received = f"Received: {argument}={str(path)!r}"
    if not data or data.isspace():
        raise ValueError(f"The file is empty. {received}")
    place = data.find(b"\0")
    if place >= 0:
        line = data.count(b"\n", 0, place) + 1
        raise ValueError(
            f"The file must be UTF-8 text, but line {line} has a NUL byte: it "
            f"is damaged, binary or UTF-16. {received}"
        )
    return data
