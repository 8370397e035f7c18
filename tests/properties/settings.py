"""How many cases a property is tried on, and how they are drawn.

CI draws the same cases each time. `KERAS_BFT_NIGHTLY=1` draws new ones, ten
times as many, over more shapes and options; `--hypothesis-seed` repeats them.
"""

import os

import hypothesis

NIGHTLY = os.environ.get("KERAS_BFT_NIGHTLY") == "1"

for _name, _derandomize in (("ci", True), ("nightly", False)):
    hypothesis.settings.register_profile(
        _name,
        derandomize=_derandomize,
        # What is compiled is slow the first time.
        deadline=None,
        # A fault that is found becomes a test, so no file has to keep it.
        database=None,
        print_blob=not _derandomize,
    )
hypothesis.settings.load_profile("nightly" if NIGHTLY else "ci")


def cases(count: int) -> hypothesis.settings:
    """Settings of a property that CI tries on `count` cases."""
    return hypothesis.settings(max_examples=count * (10 if NIGHTLY else 1))
