"""Who somebody is, and what they may do: tokens and grants as values. It is decided here and nowhere else.

An *identity* is a name with its kind: ``token:shop``, ``certificate:shop``, and ``cluster``, which the services of the
cluster show each other. Of a *charter* each service has the last that it was told: the tokens there are, by their
digests, and what is granted to whom. What is not granted is refused.

    unlocked   everybody is nobody in particular, and may do everything
    locked, and no charter was told yet   only the cluster is known; others are told to come again
    locked, with a charter                whoever is in it may do what it says

A pattern is a name, the beginning of names and a ``*``, or ``*`` for all. Dead letters, lanes and further partitions
are of their subject.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from tidemill_wire.errors import Refused, Unavailable
from tidemill_wire.fields import living_subject
from tidemill_wire.quotas import Bound, Meter, Quota, Usage
from tidemill_wire.reviewing import Reviews, is_reviewed

CLUSTER = "cluster"
NOBODY = "nobody"
EVERYTHING = "*"
KNOWN_MAX = 10_000
"""Decisions that an identity remembers: as many subjects as one client uses; then it begins anew."""


class Operation(StrEnum):
    """What may be granted. Who administers a subject may browse it, too."""

    SEND = "Send"
    CONSUME = "Consume"
    BROWSE = "Browse"
    ADMIN = "Admin"


class Right(NamedTuple):
    """What somebody needs for something: an operation on a subject or a pattern of them; of CONSUME, as which group."""

    operation: Operation
    subject: str
    group: str = ""

    def __str__(self) -> str:
        as_group = f" as group {self.group!r}" if self.group else ""
        return f"{self.operation.value} on {self.subject!r}{as_group}"


@dataclass(frozen=True, slots=True)
class Permission:
    """One line of a grant."""

    operations: frozenset[Operation]
    subjects: tuple[str, ...]
    groups: tuple[str, ...] = ()

    def allows(self, right: Right) -> bool:
        operations = self.operations
        if right.operation not in operations and not (
            right.operation is Operation.BROWSE and Operation.ADMIN in operations
        ):
            return False
        if not any(covers(pattern, right.subject) for pattern in self.subjects):
            return False
        if right.operation is not Operation.CONSUME or not self.groups:
            return True
        return any(_covers_group(pattern, right.group) for pattern in self.groups)

    def to_map(self) -> dict[str, Any]:
        said = {"operations": sorted(self.operations), "subjects": list(self.subjects)}
        return {**said, "groups": list(self.groups)} if self.groups else said

    @classmethod
    def from_map(cls, body: Mapping[str, Any]) -> Permission:
        operations = frozenset(map(Operation, body["operations"]))
        return cls(operations, tuple(body["subjects"]), tuple(body.get("groups", ())))


def covers(pattern: str, asked: str) -> bool:
    """Whether what is granted by one pattern has all that is asked by another, or by a name."""
    if pattern[-1:] == "*":
        return asked.startswith(pattern[:-1])
    return pattern == asked


def _covers_group(pattern: str, group: str) -> bool:
    """Consumers of a broadcast have groups of their own, ``GROUP.CONSUMER``."""
    return covers(pattern, group) or (pattern[-1:] != "*" and group.startswith(f"{pattern}."))


class TokenRow(NamedTuple):
    """A token as it is known: whoever shows what has that digest is ``who``, until then; 0: for ever."""

    id: str
    who: str
    digest: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Charter:
    """See the module."""

    version: int
    grants: Mapping[str, tuple[Permission, ...]] = field(default_factory=dict[str, tuple[Permission, ...]])
    tokens: Mapping[str, TokenRow] = field(default_factory=dict[str, TokenRow])
    quotas: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    """By whom they bind; nobody else has one."""

    def to_map(self) -> dict[str, Any]:
        grants = {who: [one.to_map() for one in some] for who, some in self.grants.items()}
        return {
            "version": self.version,
            "grants": grants,
            "tokens": [list(row) for row in self.tokens.values()],
            "quotas": {who: quota.to_map() for who, quota in self.quotas.items()},
        }

    @classmethod
    def from_map(cls, body: Mapping[str, Any]) -> Charter:
        """What ``to_map`` made, at another service of the cluster."""
        grants = {
            str(who): tuple(Permission.from_map(one) for one in some) for who, some in body["grants"].items()
        }
        rows = [
            TokenRow(str(id_), str(who), str(digest), int(until))
            for id_, who, digest, until in body["tokens"]
        ]
        quotas = {str(who): Quota.from_map(quota) for who, quota in body.get("quotas", {}).items()}
        return cls(int(body["version"]), grants, {row.digest: row for row in rows}, quotas)


class Identity:
    """Somebody, and what they may do; decided once for each subject."""

    __slots__ = ("_known", "all", "bound", "expires_ms", "payer", "permissions", "sends", "who")

    def __init__(
        self,
        who: str,
        permissions: Iterable[Permission] = (),
        expires_ms: int = 0,
        *,
        everything: bool = False,
    ) -> None:
        self.who = who
        self.expires_ms = expires_ms
        self.all = everything
        """One of the cluster's own, or of an unlocked service."""
        self.sends: set[bytes] = set()
        """Names of partitions that it may send to, as they stand in batches; those that were asked for."""
        self.payer: Meter | None = None
        """What it may send, if that is bounded, and what of it it has used."""
        self.bound: Bound | None = None
        """What it may have in flight, if that is bounded."""
        self.permissions = tuple(permissions)
        self._known: dict[tuple[Operation, str, str], bool] = {}

    def may(self, operation: Operation, subject: str, group: str = "") -> bool:
        """Whether it is granted."""
        if self.all:
            return True
        asked = operation, subject, group
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            plain = living_subject(subject) if subject[:1] == "%" or "#" in subject else subject
            right = Right(operation, plain, group)
            known = self._known[asked] = any(one.allows(right) for one in self.permissions)
        return known

    def may_any(self, subject: str) -> bool:
        """Whether anything is granted there, so that it may know of it."""
        return any(self.may(operation, subject) for operation in Operation) or any(
            Operation.CONSUME in one.operations and any(covers(each, subject) for each in one.subjects)
            for one in self.permissions
        )

    def check(self, *rights: Right) -> None:
        """``Refused`` with the first that is not granted."""
        for right in rights:
            if not self.may(*right):
                raise Refused("forbidden", f"{self.who} was not granted {right}")

    def check_found(self, *rights: Right) -> None:
        """The same of what was asked for by an id: whose it is, is not told to who may not know that there is one."""
        for right in rights:
            if not self.may(*right):
                what = f"{right.operation.value} on the subject of what was asked for"
                raise Refused("forbidden", f"{self.who} was not granted {what}")


ANYBODY = Identity(NOBODY, everything=True)


class Access:
    """What one service knows of everybody. ``version`` grows whenever that is something else."""

    def __init__(self, *, locked: bool = False, own: Callable[[], Collection[str]] = tuple) -> None:
        self.locked = locked
        self.version = 0
        self.charter: Charter | None = None
        self.reviews = Reviews()
        """Of tokens that are in no charter."""
        self._own = own
        """Digests of what the cluster's services show."""
        self._identities: dict[str, Identity] = {}
        self.usage = Usage()

    def obey(self, charter: Charter) -> None:
        """Somebody was granted something, or it was revoked."""
        self.charter = charter
        self.version += 1
        self._identities = {}
        self.usage.obey(charter.quotas)

    def identify(self, token: str, names: Sequence[str], now_ms: int) -> Identity:
        """Who shows a token, or a certificate with those names; ``Refused`` when it is nobody."""
        if not self.locked:
            return ANYBODY
        digest = digest_of(token) if token else ""
        if digest in self._own():
            return Identity(CLUSTER, everything=True)
        if not token and not names:
            raise Refused("unauthenticated", "nothing was shown that says who asks")
        if self.charter is None:
            raise Unavailable("grants_unknown", "this service was not told yet who may do what")
        if not token:
            return self._by_name(names, self.charter, now_ms)
        return self._by_token(token, digest, self.charter, now_ms)

    def _by_token(self, token: str, digest: str, charter: Charter, now_ms: int) -> Identity:
        row = charter.tokens.get(digest)
        if row is None and self.reviews.on and is_reviewed(token):
            who, again_ms = self.reviews.look(digest, token, now_ms)
            return self._identity(digest, who, again_ms, charter, now_ms)
        if row is None:
            raise Refused("unauthenticated", "the token is none, or was revoked")
        if row.expires_ms and now_ms >= row.expires_ms:
            raise Refused("unauthenticated", f"the token {row.id} of {row.who} is over")
        return self._identity(digest, row.who, row.expires_ms, charter, now_ms)

    def _by_name(self, names: Sequence[str], charter: Charter, now_ms: int) -> Identity:
        known = [who for who in map(certified, names) if who in charter.grants]
        who = known[0] if known else certified(names[0])
        return self._identity(who, who, 0, charter, now_ms)

    def _identity(self, key: str, who: str, expires_ms: int, charter: Charter, now_ms: int) -> Identity:
        found = self._identities.get(key)
        if found is None or found.expires_ms != expires_ms:
            if len(self._identities) >= KNOWN_MAX:
                self._identities.clear()
            found = self._identities[key] = Identity(who, charter.grants.get(who, ()), expires_ms)
            found.payer = self.usage.payer(who, now_ms)
            found.bound = self.usage.bound(who)
        return found


def certified(name: str) -> str:
    """Whom a certificate with that name is."""
    return f"certificate:{name}"


def digest_of(token: str) -> str:
    """As a token is kept. Tokens are 32 random bytes, so that nobody can guess what was digested."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
