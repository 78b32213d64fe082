"""HTTP requests at meta's border: what a body and an address say, and how a denial is answered."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from tidemill_host.refusals import HttpRefused
from tidemill_meta.asked import wrong
from tidemill_meta.errors import Denied

if TYPE_CHECKING:
    from multidict import MultiMapping

Query: TypeAlias = "MultiMapping[str]"


def is_said(query: Query, name: str) -> bool:
    """Whether ``?force=1`` stands there, or another name."""
    said = query.get(name, "0")
    if said not in {"0", "1"}:
        raise wrong(f"{name} is {said[:20]!r}: write 1, or leave it out")
    return said == "1"


def parse_body(data: bytes) -> object:
    """What a body says; without one, nothing."""
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError) as error:
        raise wrong(f"the body is no JSON ({str(error)[:100]})") from None


@contextmanager
def denials() -> Generator[None]:
    """What is denied in the block is refused as HTTP says it."""
    try:
        yield
    except Denied as error:
        kind = error.kind
        raise HttpRefused(kind.status, kind.code, error.detail, kind.advice, error.more) from None
