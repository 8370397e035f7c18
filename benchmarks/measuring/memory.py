"""Memory of this process, as Linux counts it."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path


def memory(name: str) -> int:
    """Bytes that Linux says this process has, such as `"VmRSS"`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


def reset_peak() -> None:
    """Sets the peak, `"VmHWM"`, to what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def return_freed() -> None:
    """Gives memory that is no longer used back to the system.

    Else it is used again unseen, or given back while the peak is measured.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def growth(work: Callable[[], object]) -> int:
    """Bytes by which the process grows, at its peak, over a call of `work`."""
    return_freed()
    before = memory("VmRSS")
    reset_peak()
    work()
    return memory("VmHWM") - before
