"""Arrow has no types of its own: here it becomes ``Any``, in one place, so that both checkers are strict elsewhere."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")


def numbers_of(values: Any, missing: Any = None) -> Any:
    """An array of numpy's as one of Arrow's, which has the same memory; null where ``missing`` is true. ``pa.array``
    does it, too, and imports all of pandas to ask whether that is where the numbers come from.
    """
    kind, count = pa.from_numpy_dtype(values.dtype), len(values)
    data = np.packbits(values, bitorder="little") if kind == pa.bool_() else np.ascontiguousarray(values)
    there = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [there, pa.py_buffer(data)])


def text_of(text: str) -> Any:
    """A scalar of Arrow's; ``pa.scalar`` asks pandas, too."""
    data = text.encode()
    places = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.Array.from_buffers(pa.string(), 1, [None, places, pa.py_buffer(data)])[0]


def numpy_of(column: Any) -> Any:
    """The numbers of a column that lacks none, as an array of numpy's over the same memory, for the same reason."""
    assert column.null_count == 0, "where a number is missing there is none"
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    every = np.frombuffer(whole.buffers()[1], whole.type.to_pandas_dtype())
    return every[whole.offset : whole.offset + len(whole)]
