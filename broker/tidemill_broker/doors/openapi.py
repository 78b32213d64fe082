"""What the doors of a broker share in their descriptions; how a page is made is the host's part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill_host import openapi
from tidemill_host.openapi import Part, pattern
from tidemill_wire.fields import CONSUMER, NAME

DESCRIPTION = (
    "Send and consume over HTTP, and look at the queue. Every error has one shape, says what to do, and whether to "
    "try again: with `retryable` the same request may work later, and `Retry-After` says when."
)


def schemas() -> Part:
    """What several doors need."""
    return {
        "Subject": pattern(NAME.pattern, "a subject's name", examples=["order.created"]),
        "Group": pattern(NAME.pattern, "a consumer group's name", examples=["billing"]),
        "Consumer": pattern(CONSUMER.pattern, "a consumer's name"),
    }


def assemble(paths: Iterable[Mapping[str, Part]], components: Iterable[Part], version: str) -> Part:
    """The whole page. Two doors may share a path; each has its own methods there."""
    return openapi.assemble(paths, (*components, schemas()), version, DESCRIPTION)
