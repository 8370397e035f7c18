"""Fuzzes a reader: `python -m tests.fuzz READER [--seconds 600] [--seed 0]`.

Valid files are damaged and read. Anything but a ValueError or an OSError that
names what is wrong, a second of work, or 500 MB is a fault: each kind is
printed once and its files are kept. With `atheris` (an extra of nobody: `pip
install atheris`) what is damaged further is chosen by the code it reaches.
"""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

SECONDS, MEGABYTES = 1.0, 500


class Fuzzer:
    """Reads damaged files, and keeps count of what happens.

    A case is bytes: the number of a file, and what takes its place.
    """

    def __init__(self, reader: Any, output: Path) -> None:
        self.reader = reader
        self.output = output
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.valid = self.folder / "valid"
        self.valid.mkdir()
        reader.write(self.valid)
        self.names = sorted(path.name for path in self.valid.iterdir())
        self.cases = self.refused = 0
        self.faults: dict[str, int] = {}
        # The first time takes what is imported where it is used.
        reader.read(self.valid)

    def seeds(self) -> list[bytes]:
        """The valid files as cases."""
        return [
            bytes([number]) + (self.valid / name).read_bytes()
            for number, name in enumerate(self.names)
        ]

    def mutate(self, case: bytes, seed: int) -> bytes:
        """Damages a case further."""
        from tests.fuzz.readers import mutation_of

        generator = random.Random(seed)
        number = (case[0] if case else 0) % len(self.names)
        change = mutation_of(self.names[number])
        return bytes([number]) + change(generator, case[1:])

    def run(self, case: bytes) -> None:
        """Reads the files of a case."""
        name = self.names[(case[0] if case else 0) % len(self.names)]
        folder = self.folder / "case"
        shutil.rmtree(folder, ignore_errors=True)
        if self.reader.alone:
            folder.mkdir()
        else:
            shutil.copytree(self.valid, folder)
        (folder / name).write_bytes(case[1:])
        start = time.process_time()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.cases += 1
        try:
            self.reader.read(folder)
        except (ValueError, OSError) as error:
            self.refused += 1
            if str(folder) not in str(error) and "Received: " not in str(error):
                self._fault(f"unnamed {_kind(error)}", name, case, error)
            elif len(str(error)) > 2000:
                self._fault(f"long {_kind(error)}", name, case, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fault(_kind(error), name, case, error)
        seconds = time.process_time() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if seconds > SECONDS:
            self._fault("too slow", name, case, f"{seconds:.1f} s")
        if after - before > 1024 * MEGABYTES:
            megabytes = (after - before) // 1024
            self._fault("too much memory", name, case, f"{megabytes} MB")

    def _fault(
        self, kind: str, name: str, case: bytes, error: object = ""
    ) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        if self.faults[kind] == 1:
            self.output.mkdir(parents=True, exist_ok=True)
            path = self.output / f"{len(self.faults):03}-{name}"
            path.write_bytes(case[1:])
            print(f"FAULT {kind} in {path}: {error!s:.200}", flush=True)

    def summary(self) -> str:
        """One line of counts."""
        return (
            f"{self.cases} cases, {self.refused} refused, "
            f"{len(self.faults)} kinds of faults"
        )


def _kind(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__} at {place}"


def main(arguments: list[str]) -> int:
    """Fuzzes and returns 1 where there are faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("fuzz-faults"))
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")

    from tests.fuzz.readers import READERS

    fuzzer = Fuzzer(READERS[options.reader], options.output / options.reader)
    stop = time.monotonic() + options.seconds
    if atheris is None:
        _run_plainly(fuzzer, stop, options.seed)
    else:
        _run_guided(fuzzer, stop, options.seed)
    print(f"{options.reader}: {fuzzer.summary()}", flush=True)
    return int(bool(fuzzer.faults))


def _run_plainly(fuzzer: Fuzzer, stop: float, seed: int) -> None:
    seeds = fuzzer.seeds()
    while time.monotonic() < stop:
        seed += 1
        fuzzer.run(fuzzer.mutate(seeds[seed % len(seeds)], seed))


def _run_guided(fuzzer: Fuzzer, stop: float, seed: int) -> None:
    corpus, seeds = fuzzer.folder / "corpus", fuzzer.seeds()
    corpus.mkdir()
    for number, case in enumerate(seeds):
        (corpus / str(number)).write_bytes(case)

    def test(case: bytes) -> None:
        fuzzer.run(case)
        if time.monotonic() > stop:
            # libFuzzer takes any other way out for a crash.
            print(f"{sys.argv[1]}: {fuzzer.summary()}", flush=True)
            os._exit(int(bool(fuzzer.faults)))

    def mutate(case: bytes, max_size: int, seed: int) -> bytes:
        # What is broken stays broken, so half begin with a valid file.
        start = seeds[seed // 2 % len(seeds)] if seed % 2 else case
        return fuzzer.mutate(start, seed)[:max_size]

    atheris.Setup(
        [sys.argv[0], f"-seed={seed + 1}", "-max_len=1000000", "-timeout=60"]
        + [
            "-rss_limit_mb=0",
            "-verbosity=0",
            f"-artifact_prefix={fuzzer.folder}/",
            str(corpus),
        ],
        test,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    if atheris is not None:
        with atheris.instrument_imports(include=["keras_bft"]):
            import tests.fuzz.readers  # noqa: F401
    sys.exit(main(sys.argv[1:]))
