"""Programs of the repository that are no package: loaded by their path."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script(path: str) -> ModuleType:
    """As a module; nothing of it runs but its definitions."""
    name = path.removesuffix(".py").replace("/", "_").replace("-", "_")
    spec = spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for what annotations mean
    spec.loader.exec_module(module)
    return module
