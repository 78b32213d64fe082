"""What is in the Secrets that QueueClusters and Grants name: by what the operator is sure of a meta, and what it shows.

Secrets are asked for by name, one at a time, and never listed or watched, so that the operator needs no more than
``get``. So a change in one is noticed late: what was read is believed for a while, and read again at once when somebody
whom it was shown to refuses it, which is how a rotation looks from here.

    read       it is in the cache, for ``KEPT_S``
    doubted    what it says was refused      read again, once a second at most
    missing    it is not there, or may not be read: said, and asked for again after as long
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tidemill.security import Security, SecurityProblem
from tidemill_operator.desired.locks import AUTHORITY, OPEN, Locks, SecretKey
from tidemill_operator.doors.api import Refused
from tidemill_operator.kinds import SECRET
from tidemill_operator.marks import part
from tidemill_operator.refusals import Failure
from tidemill_wire.access import digest_of

KEPT_S = 30.0
DOUBT_S = 1.0
SECRETS_MAX = 10_000
CHARS_MIN = 32
"""As many as 24 random bytes have; of a shorter token somebody could guess what was digested."""

Get: TypeAlias = Callable[[str], Awaitable[Mapping[str, Any]]]
"""An object of the API server, by its path; ``Refused`` when there is none to be had."""


@dataclass(slots=True)
class Kept:
    """What was read of one Secret."""

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    failure: Failure | None = None
    """Why it could not be read, when it was last tried."""
    read_s: float = float("-inf")
    doubted: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Keys:
    """See the module. ``now_s`` is a clock that only goes forward."""

    def __init__(self, get: Get, now_s: Callable[[], float] = time.monotonic) -> None:
        self._get = get
        self._now_s = now_s
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    async def security(self, namespace: str, locks: Locks) -> Security:
        """By what the operator speaks with a cluster; a ``Failure`` when a Secret does not say so."""
        if locks == OPEN:
            return Security()
        authority = token = ""
        if locks.tls:
            authority = await self.value(namespace, locks.tls, AUTHORITY)
        if locks.token is not None:
            lines = (await self.value(namespace, *locks.token)).split()
            token = lines[0] if lines else ""
        security = Security(ca_text=authority, token=token)
        try:
            security.context()
        except SecurityProblem as problem:
            sentence = f"{AUTHORITY} of the Secret {locks.tls} cannot be used: {problem}"
            raise Failure("passing", "ReferenceNotFound", sentence) from None
        return security

    async def digests(self, namespace: str, wanted: Sequence[SecretKey]) -> Mapping[str, tuple[str, ...]]:
        """Of the tokens in Secrets, a line each; of a Secret that is not there, or holds none, nothing."""
        found: dict[str, tuple[str, ...]] = {}
        for one in wanted:
            try:
                tokens = (await self.value(namespace, *one)).split()
            except Failure as failure:
                if failure.reason != "ReferenceNotFound":
                    raise
                tokens = []
            found[str(one)] = tuple(digest_of(each) for each in tokens if len(each) >= CHARS_MIN)
        return found

    async def value(self, namespace: str, name: str, key: str) -> str:
        """What stands under a key of a Secret; a ``Failure`` when nothing does."""
        kept = self._kept.setdefault((namespace, name), Kept())
        self._kept.move_to_end((namespace, name))
        if len(self._kept) > SECRETS_MAX:
            self._kept.popitem(last=False)
        async with kept.lock:
            age_s = self._now_s() - kept.read_s
            if age_s > KEPT_S or ((kept.doubted or kept.failure is not None) and age_s > DOUBT_S):
                kept.failure = None
                try:
                    kept.values = await self._read(namespace, name)
                except Failure as failure:
                    kept.failure = failure
                kept.read_s, kept.doubted = self._now_s(), False
        if kept.failure is not None:
            # What was raised before has the traceback of another pass.
            former = kept.failure
            raise Failure(former.kind, former.reason, former.sentence, former.after_ms)
        found = kept.values.get(key, "")
        if not found.strip():
            self.doubt(namespace, name)
            raise Failure(
                "passing", "ReferenceNotFound", f"the Secret {name} has no {key}: write one into it"
            )
        return found

    def doubt(self, namespace: str, *names: str) -> None:
        """What was read of these is not believed: another look, soon."""
        for name in names:
            if (namespace, name) in self._kept:
                self._kept[namespace, name].doubted = True

    def doubt_locks(self, namespace: str, locks: Locks) -> None:
        """The same of what a cluster's locks rest upon."""
        self.doubt(namespace, locks.tls, *([locks.token.secret] if locks.token is not None else []))

    async def _read(self, namespace: str, name: str) -> Mapping[str, str]:
        try:
            found = await self._get(SECRET.path(namespace, name))
        except Refused as refused:
            if refused.status == 404:
                sentence = f"there is no Secret {name} in this namespace: make it"
                raise Failure("passing", "ReferenceNotFound", sentence) from None
            if refused.status == 403:
                sentence = f"the operator may not read the Secret {name}: look at its value rbac.secretNames"
                raise Failure("passing", "NotPermitted", sentence) from None
            raise refused.failure from None
        return {key: _text(value) for key, value in part(found, "data").items()}


def _text(encoded: object) -> str:
    """Of what is no text, nothing."""
    try:
        return base64.b64decode(str(encoded), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
