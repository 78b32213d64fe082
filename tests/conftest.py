"""What all tests share. Few things, on purpose: fixtures live beside the tests that need them."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a busy machine is no bug. A failure prints the blob that repeats it; found examples stay in .hypothesis.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=False)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
