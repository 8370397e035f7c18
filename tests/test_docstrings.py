import doctest
import importlib
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bft

ROOT = Path(keras_bft.__file__).parent
MODULES = sorted(
    ".".join(("keras_bft", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    # The examples of the integrations run in the processes of their own tests,
    # and the kernels can be imported with one backend each.
    if path.stem != "__init__"
    and not {"integrations", "_gpu"} & set(path.parts)
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_examples(module, report):
    """Returns how many examples of the module ran, and how many failed."""
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    names = {"np": np, "keras": keras, "keras_bft": keras_bft}
    for test in doctest.DocTestFinder().find(
        module, globs={**vars(module), **names}
    ):
        runner.run(test, out=report.append)
    return runner.summarize(verbose=False)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_and_print_what_they_say(name):
    report = []
    results = run_examples(importlib.import_module(name), report)
    assert results.failed == 0, "".join(report)


def test_examples_are_found():
    """Guards the test above against finding nothing."""
    report = []
    module = importlib.import_module("keras_bft.ops.precision")
    assert run_examples(module, report).attempted >= 6
