"""Which function answers which path: ``/v1/things/{thing}/parts``, one function a method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from aiohttp import web

Variables: TypeAlias = Mapping[str, str]
Answer: TypeAlias = Callable[[web.BaseRequest, Variables], Awaitable[web.StreamResponse]]


Found: TypeAlias = tuple[Mapping[str, Answer], Variables, str]
"""The methods of a path, its variables, and how it is written."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path with variables in braces, and who answers. A variable is one segment, never empty."""

    method: str
    path: str
    answer: Answer


class Router:
    """Finds routes; those with fewer variables first."""

    def __init__(self, routes: Iterable[Route]) -> None:
        by_path: dict[str, dict[str, Answer]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route.answer
        self._by_length: dict[int, list[tuple[list[str], dict[str, Answer]]]] = {}
        for path in sorted(by_path, key=lambda path: path.count("{")):
            segments = path.split("/")
            self._by_length.setdefault(len(segments), []).append((segments, by_path[path]))

    def find(self, raw_path: str) -> Found | None:
        """The methods of a path as it came, still percent-encoded, its variables decoded, and how it is written."""
        parts = raw_path.split("/")
        for segments, methods in self._by_length.get(len(parts), ()):
            variables: dict[str, str] = {}
            for segment, part in zip(segments, parts, strict=True):
                if segment.startswith("{") and part:
                    variables[segment[1:-1]] = unquote(part) if "%" in part else part
                elif segment != part:
                    break
            else:
                return methods, variables, "/".join(segments)
        return None
