"""Tokens of which somebody else knows whose they are, as those of ServiceAccounts: who was asked, and what is believed.

A service asks meta, and meta asks Kubernetes. Of a token it is remembered what was found, for as long as that may be
believed, and nobody waits in here: who shows a token that is not known yet comes again.

    unknown     it is shown                          wanted, and whoever shows it is told to come again
    wanted      an answer comes                      believed, or nobody's, for as long as the answer says
    believed    half of that time is over, and it is shown    wanted again, and believed meanwhile
    believed    all of it is over                    unknown
    nobody's    it is shown                          refused, until its time is over; then unknown

So what is taken back holds for that time and no longer, and who asks on finds out after half of it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tidemill_wire.errors import Refused, Unavailable

WANTED_MAX = 1_000
"""Tokens about which nobody has asked yet; who shows one more is told to come again and is not noted."""
FOUND_MAX = 20_000
ASKED_MAX = 100
"""Tokens that one request asks about."""
AGAIN_MS = 1_000
SIGNED = re.compile(r"ey[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
NOBODY_MS = 10_000
"""For so long a token that is nobody's is not asked about again."""


class Finding(NamedTuple):
    """What was answered of a token: whose it is, or nobody's when empty; and for how long that may be believed."""

    who: str
    for_ms: int


@dataclass(frozen=True, slots=True)
class Believed:
    """A finding, at this service."""

    who: str
    half_ms: int
    until_ms: int


def is_reviewed(token: str) -> bool:
    """Whether it looks like one that is signed: three parts, the first of which begins as JSON does in base64."""
    return SIGNED.fullmatch(token) is not None


class Reviews:
    """See the module. ``on``: somebody asks about what is wanted, whom ``wake`` tells."""

    def __init__(self) -> None:
        self.on = False
        self.wake: Callable[[], None] = lambda: None
        self._wanted: OrderedDict[str, str] = OrderedDict()
        self._found: OrderedDict[str, Believed] = OrderedDict()

    def look(self, digest: str, token: str, now_ms: int) -> tuple[str, int]:
        """Whose it is, and when to look again; ``Refused`` when it is nobody's, ``Unavailable`` when that is not known
        yet.
        """
        found = self._found.get(digest)
        if found is not None and now_ms >= found.until_ms:
            del self._found[digest]
            found = None
        if found is None:
            self._want(digest, token)
            raise Unavailable("grants_unknown", "it is asked whose this token is")
        if not found.who:
            raise Refused("unauthenticated", "the token is nobody's, or not for this queue, or over")
        self._found.move_to_end(digest)  # those that nobody shows are forgotten first
        if now_ms < found.half_ms:
            return found.who, found.half_ms
        self._want(digest, token, first=True)
        return found.who, min(found.until_ms, now_ms + AGAIN_MS)

    def known(self, digest: str, now_ms: int) -> Finding | None:
        """What is believed of it, and for how long yet; None: nothing."""
        found = self._found.get(digest)
        if found is None or now_ms >= found.until_ms:
            return None
        return Finding(found.who, found.until_ms - now_ms)

    def is_stale(self, digest: str, now_ms: int) -> bool:
        """Whether it is to be asked about: nothing is believed of it, or for half of the time it was."""
        found = self._found.get(digest)
        return found is None or now_ms >= found.half_ms

    def wanted(self) -> Sequence[tuple[str, str]]:
        """Digests and tokens to ask about now, those that were shown first."""
        return list(self._wanted.items())[:ASKED_MAX]

    def answered(self, digest: str, finding: Finding, now_ms: int) -> None:
        """What somebody said who knows."""
        self._wanted.pop(digest, None)
        until_ms = now_ms + (finding.for_ms if finding.who else min(finding.for_ms, NOBODY_MS))
        self._found[digest] = Believed(finding.who, (now_ms + until_ms) // 2, until_ms)
        self._found.move_to_end(digest)
        while len(self._found) > FOUND_MAX:
            self._found.popitem(last=False)

    def unanswered(self, digest: str) -> None:
        """Nobody could be asked: who shows it again has it asked about again."""
        self._wanted.pop(digest, None)

    def _want(self, digest: str, token: str, *, first: bool = False) -> None:
        """``first``: whom it believed goes before those that nobody knows, and is noted however many these are."""
        if digest in self._wanted or (not first and len(self._wanted) >= WANTED_MAX):
            return
        self._wanted[digest] = token
        self._wanted.move_to_end(digest, last=not first)
        self.wake()


def findings_map(found: Mapping[str, Finding]) -> dict[str, Any]:
    """As meta answers a service."""
    return {"found": [[digest, *finding] for digest, finding in found.items()]}


def parse_findings(answer: object) -> dict[str, Finding]:
    """What ``findings_map`` made; ``ValueError`` when it is something else."""
    rows: object = cast("Mapping[str, object]", answer).get("found") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ValueError("meta says nothing of tokens")  # noqa: TRY004 -- who calls catches one kind
    found: dict[str, Finding] = {}
    for row in cast("list[object]", rows):
        match row:
            case [str(digest), str(who), int(for_ms)] if for_ms >= 0:
                found[digest] = Finding(who, for_ms)
            case _:
                raise ValueError("meta says of a token what is none")
    return found
