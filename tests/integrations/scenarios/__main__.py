"""Runs the checks of scenarios in this process and reports each one.

    CHECK_FOLDER=FOLDER python -m tests.integrations.scenarios variables ...

Several share a process, since starting TensorFlow takes longer than most of
them. A check is a function whose name begins with `check_`.
"""

import importlib
import json
import os
import sys
import traceback
import unittest
from types import FunctionType

SCENARIOS = sys.argv[1:]
if SCENARIOS != ["imports"]:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from tests.integrations.scenarios.checks import FOLDER  # noqa: E402

# Two devices for a strategy; they have to be made before anything is computed.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)


def run(check: FunctionType) -> tuple[str, str]:
    """Outcome of a check, and its reason or its traceback."""
    keras.utils.set_random_seed(0)
    try:
        check()
    except unittest.SkipTest as skipped:
        return "skipped", str(skipped)
    except Exception:
        return "failed", traceback.format_exc()
    finally:
        keras.config.set_dtype_policy("float32")
    return "passed", ""


outcomes = {}
for scenario in SCENARIOS:
    module = importlib.import_module(f"{__package__}.{scenario}")
    for name, check in vars(module).items():
        if name.startswith("check_") and isinstance(check, FunctionType):
            outcomes[f"{scenario}.{name}"] = run(check)
            # After each, so that a crash leaves the report of those before.
            (FOLDER / "report.json").write_text(json.dumps(outcomes))
