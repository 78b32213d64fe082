"""What meta keeps of archives and replays; see ``values.py`` for what every kind has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

Marks: TypeAlias = tuple[tuple[str, str, int], ...]
"""Watermarks: broker group, partition, and the sequence below which all is archived."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive: of which subjects, how far it has come, and its last runs. One that has ended holds nothing."""

    KIND: ClassVar[str] = "archive"
    name: str
    subjects: tuple[str, ...] = ()
    """Subjects, or patterns of them."""
    ended: bool = False
    watermarks: Marks = ()
    runs: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """The newest last, each as its job has told it."""
    version: int = 0

    @property
    def key(self) -> str:
        return self.name

    @property
    def kept(self) -> tuple[object, ...]:
        """What brokers keep messages by; how runs go is none of their business."""
        return self.subjects, self.ended, self.watermarks

    def to_map(self) -> dict[str, Any]:
        return {
            "subjects": list(self.subjects), "ended": self.ended,
            "watermarks": [list(one) for one in self.watermarks], "runs": [[*one] for one in self.runs],
        }  # fmt: skip

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> Archive:
        marks = tuple((str(group), str(name), int(number)) for group, name, number in body["watermarks"])
        runs = tuple((str(name), said) for name, said in body["runs"])
        return cls(key, tuple(body["subjects"]), bool(body["ended"]), marks, runs, version)


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """What the job of a replay has told last."""

    KIND: ClassVar[str] = "replay"
    name: str
    said: Mapping[str, Any]
    version: int = 0

    @property
    def key(self) -> str:
        return self.name

    def to_map(self) -> dict[str, Any]:
        return dict(self.said)

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> ReplayRecord:
        return cls(key, body, version)
