"""Arrow has no types of its own: here it becomes ``Any``, in one place, so that both checkers are strict elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Any

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
