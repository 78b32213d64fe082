"""A store in memory, in which a process may die at any operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidemill_spark.arrow import pa
from tidemill_spark.stores import Entry
from tidemill_spark.stores.ranged import filled


class Died(Exception):
    """The process was killed, before or after an operation of the store."""


class Memory:
    """A store in memory. ``dies_at``: the operation at which the process dies; what the store did is done."""

    def __init__(self) -> None:
        self.uri = "memory"
        self.empty()

    def empty(self) -> None:
        """As it was made."""
        self.objects: dict[str, bytes] = {}
        self.at: dict[str, int] = {}
        self.now_ms = 0
        self.operations = 0
        self.dies_at: int | None = None
        self.does_it = False

    def _step(self, act: Any = None) -> Any:
        self.operations += 1
        dying = self.operations == self.dies_at
        if dying and not self.does_it:
            raise Died
        result = act() if act is not None else None
        if dying:
            raise Died
        return result

    def create(self, name: str, data: bytes) -> bool:
        def act() -> bool:
            if name in self.objects:
                return False
            self.objects[name], self.at[name] = data, self.now_ms
            return True

        made: bool = self._step(act)
        return made

    def write(self, name: str, data: bytes) -> None:
        self._step(lambda: self.objects.__setitem__(name, data))
        self.at[name] = self.now_ms

    def make(self, name: str, fill: Callable[[Any], None]) -> int:
        data: bytes = filled(fill).to_pybytes()
        self.write(name, data)
        return len(data)

    def read(self, name: str) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def fetch(self, name: str, start: int, size: int) -> bytes:
        return self.read(name)[start : start + size]

    def open(self, name: str, size: int) -> Any:
        return pa.BufferReader(self.read(name)[:size])

    def list(self, folder: str) -> Iterator[Entry]:
        found = [name for name in self.objects if name.startswith(f"{folder}/" if folder else "")]
        return (Entry(name, len(self.objects[name]), self.at[name]) for name in found)

    def delete(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._step(lambda name=name: self.objects.pop(name, None))
