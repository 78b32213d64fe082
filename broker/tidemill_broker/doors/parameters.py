"""What stands behind a question mark in a path: each parameter once, none that nobody reads, numbers and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiohttp import web

from tidemill_host.refusals import HttpRefused
from tidemill_wire.schema import parse_timestamp

ADVICE = "see /openapi.json for what this path takes"
DIGITS_MAX = 18


def wrong(detail: str) -> HttpRefused:
    """A parameter that cannot be."""
    return HttpRefused(400, "malformed_request", detail, ADVICE)


def parameters_of(request: web.BaseRequest, known: Iterable[str]) -> dict[str, str]:
    """Each once, and none that nobody reads: a misspelt bound would be no bound."""
    given = request.rel_url.query
    for name in given:
        if name not in known:
            raise wrong(f"there is no parameter {name[:60]!r} here")
        if len(given.getall(name)) > 1:
            raise wrong(f"the parameter {name!r} is there more than once")
    return dict(given)


def number_of(name: str, written: str) -> int:
    """A whole number from 0 on."""
    if written.isascii() and written.isdigit() and len(written) <= DIGITS_MAX:
        return int(written)
    raise wrong(f"{name} {written[:60]!r} is no number")


def limit_of(parameters: Mapping[str, str], default: int, most: int) -> int:
    """How much one answer shall hold."""
    limit = number_of("limit", parameters.get("limit", str(default)))
    if not 1 <= limit <= most:
        raise HttpRefused(
            400, "limit_exceeded", f"the limit {limit} is not within 1 and {most}", ADVICE
        )  # fmt: skip
    return limit


def time_of(parameters: Mapping[str, str], name: str, default: int) -> int:
    """In milliseconds since 1970, as which it may also be written; nothing is before that."""
    written = parameters.get(name)
    if written is None:
        return default
    if written.isascii() and written.isdigit() and len(written) <= DIGITS_MAX:
        return int(written)
    at_ms = parse_timestamp(written)
    if at_ms is None:
        raise wrong(
            f"{name} {written[:60]!r} is no time: write one such as 2026-09-01T00:00:00Z, or milliseconds"
        )
    return max(0, at_ms)
