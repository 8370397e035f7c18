"""Which files of a folder hold a checkpoint's tensors."""

import re
from pathlib import Path
from pathlib import PurePosixPath
from pathlib import PureWindowsPath
from typing import Any

from keras_bft._json_files import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r".+-\d{5,}-of-(\d{5,})\.safetensors")

# Far above any configuration or index; a vocabulary has its own bound.
MAX_JSON_BYTES = 10_000_000

_PICKLES = ("*.bin", "*.pt", "*.pth", "pytorch_model.bin.index.json")


def find_files(folder: Path) -> tuple[list[Path], dict[str, str] | None]:
    """Finds the safetensors files of a checkpoint.

    Args:
        folder: Folder of the checkpoint, resolved.

    Returns:
        The files, and the name of the file of every tensor if there is an
        index.

    Raises:
        ValueError: If there are none, it is unclear which are meant, or one
            lies outside the folder.
    """
    index, single = folder / INDEX, folder / SINGLE
    if index.is_file():
        weight_map = _read_index(index)
        names = sorted(set(weight_map.values()))
        if single.is_file() and SINGLE not in names:
            raise ValueError(
                f"The folder holds both {SINGLE} and {INDEX}, which names "
                "other files. Remove the one that is out of date. Received: "
                f"folder={str(folder)!r}"
            )
        for tensor, name in weight_map.items():
            if not (folder / name).is_file():
                raise ValueError(
                    f"The index places the tensor {tensor!r:.80} in "
                    f"{name!r:.80}, which is not there. Received: "
                    f"file={str(index)!r}"
                )
        return [inside(folder / name) for name in names], weight_map
    if single.is_file():
        return [inside(single)], None
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        _refuse_without_safetensors(folder)
    part = SHARD.fullmatch(found[0].name)
    if len(found) > 1 or part and int(part[1]) > 1:
        raise ValueError(
            f"Several safetensors files need {INDEX}, which is missing. "
            f"Received: folder={str(folder)!r} with "
            f"{[path.name for path in found[:10]]}"
        )
    return [inside(found[0])], None


def _read_index(path: Path) -> dict[str, str]:
    weight_map = read_settings(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            "The index must have a `weight_map` from tensors to files. "
            f"Received: file={str(path)!r}, weight_map={weight_map!r:.200}"
        )
    for tensor, name in weight_map.items():
        # A plain name can't leave the folder, whatever the system's paths.
        if (
            not isinstance(name, str)
            or not name.endswith(".safetensors")
            or PurePosixPath(name).name != name
            or PureWindowsPath(name).name != name
        ):
            raise ValueError(
                f"The index must place the tensor {tensor!r:.80} in a "
                "safetensors file beside it, named without a folder. Received: "
                f"file={str(path)!r}, {tensor:.80}={name!r:.80}"
            )
    return weight_map


def read_settings(path: Path) -> dict[str, Any]:
    """Reads one of a checkpoint's JSON files, none of which is large.

    Args:
        path: The file.

    Returns:
        Its object, empty if there is no such file.

    Raises:
        ValueError: If the file is malformed, too large, or a link out of its
            folder.
    """
    return read_json(inside(path), MAX_JSON_BYTES) if path.is_file() else {}


def inside(path: Path) -> Path:
    """Returns the path of a file if no link takes it out of its folder.

    Args:
        path: A file of a checkpoint.

    Raises:
        ValueError: If a link leads elsewhere. In the cache of the Hugging Face
            hub it may lead to that cache's blobs.
    """
    folder, target = path.parent.resolve(), path.resolve()
    roots = [folder]
    repository = folder.parent.parent
    if folder.parent.name == "snapshots" and "--" in repository.name:
        # The cache of Hugging Face links from a snapshot to the blobs of the
        # repository, and from there to blobs that repositories share.
        roots += [repository / "blobs", repository.parent / "blobs"]
    if not any(target.is_relative_to(root) for root in roots):
        raise ValueError(
            f"The file is a link out of its folder, to {str(target)!r}. Copy "
            f"what it links to. Received: file={str(path)!r}"
        )
    return path


def _refuse_without_safetensors(folder: Path) -> None:
    pickles = sorted(
        path.name for pattern in _PICKLES for path in folder.glob(pattern)
    )
    if pickles:
        raise ValueError(
            "The checkpoint is pickled, and a pickle file runs whatever code "
            "it holds when it is loaded, so only safetensors files are read. "
            "Convert it where you trust it, with `save_pretrained` of "
            f"transformers. Received: folder={str(folder)!r} with "
            f"{pickles[:10]}"
        )
    raise ValueError(
        f"The folder holds no {SINGLE}, no {INDEX} and no other safetensors "
        f"file (pickle files are not downloaded). Received: "
        f"folder={str(folder)!r}"
    )
