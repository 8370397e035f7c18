"""A peer's process, as the benchmark sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]


class Peer:
    """Starts a peer and gives it its turns.

    Args:
        name: `"pmixer"`, `"recbole"` or `"rectools"`.
        settings: What the peer reads.
        python: Program that runs it.
        folder: Where it works and may write.
    """

    def __init__(
        self, name: str, settings: dict[str, Any], python: str, folder: Path
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        # This environment's packages are not for another Python.
        environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
        command = [python, "-W", "ignore", "-m", f"peers.{name}_peer"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment,
            )
        try:
            self.description = self._read()
        except BaseException:
            self.close()
            raise

    def turn(self) -> None:
        """Returns when the peer has done a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        self._read()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            said = self._log.read_text()[-2000:]
            print(said, file=sys.stderr)
            raise RuntimeError(
                f"The peer {self.name} ended with "
                f"{self._process.returncode}; its last words stand above."
            )
        return json.loads(line)
