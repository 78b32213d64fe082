"""What all tests share. Few things, on purpose: fixtures live beside the tests that need them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os

import pytest
from hypothesis import settings

# No deadline: a busy machine is no bug. `make test` says the same thing twice; `make soak` looks for new examples, and
# a failure prints the blob that repeats it.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("soak", settings.get_profile("ci"), derandomize=False, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

DEADLINE_S = 60

# What tests download or build once goes there all the same.
if os.environ.get("XDG_CACHE_HOME", os.devnull) != os.devnull:
    os.environ.setdefault("TIDEMILL_TEST_CACHE", f"{os.environ['XDG_CACHE_HOME']}/tidemill")
# Clients keep the last good routes there, by the address of their server; tests take the same ports again and again.
os.environ["XDG_CACHE_HOME"] = os.devnull


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays to the end: who collects garbage after a test need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, with a deadline."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    case = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(case, DEADLINE_S))
    return True
