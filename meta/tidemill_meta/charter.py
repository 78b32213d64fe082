"""Grants and tokens as meta keeps them, and the charter that is made of all of them.

Of a token its digest is kept, and nothing that it could be made of. A person who holds one more token of the same name
may throw away the former one when nobody shows it any more: so tokens are rotated without a moment in which none holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire.access import Charter, Permission, TokenRow
from tidemill_wire.granted import Granted
from tidemill_wire.quotas import UNBOUNDED, Quota, least

GRANTS_MAX, TOKENS_MAX = 10_000, 10_000


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """One grant, by the name that people gave it."""

    KIND: ClassVar[str] = "grant"
    name: str
    granted: Granted
    version: int = 0

    @property
    def key(self) -> str:
        return self.name

    def to_map(self) -> dict[str, Any]:
        return self.granted.to_map()

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> GrantRecord:
        permissions = tuple(Permission.from_map(one) for one in body["permissions"])
        quota = Quota.from_map(body.get("quota", {}))
        return cls(key, Granted(tuple(body["principals"]), permissions, quota), version)

    def row(self) -> dict[str, Any]:
        """As people see it."""
        return {"grant": self.name, **self.granted.to_map(), "version": self.version}


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token."""

    KIND: ClassVar[str] = "token"
    id: str
    who: str
    digest: str
    created_ms: int
    expires_ms: int
    version: int = 0

    @property
    def key(self) -> str:
        return self.id

    def to_map(self) -> dict[str, Any]:
        return {
            "who": self.who,
            "digest": self.digest,
            "created": self.created_ms,
            "expires": self.expires_ms,
        }

    @classmethod
    def from_map(cls, key: str, version: int, body: Mapping[str, Any]) -> TokenRecord:
        return cls(key, body["who"], body["digest"], body["created"], body["expires"], version)

    def row(self) -> dict[str, Any]:
        """As people see it: without what it could be recognised by."""
        return {
            "token": self.id,
            "who": self.who,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
        }


def charter_of(version: int, grants: list[GrantRecord], tokens: list[TokenRecord]) -> Charter:
    """What every service is told."""
    granted: defaultdict[str, tuple[Permission, ...]] = defaultdict(tuple)
    quotas: dict[str, Quota] = {}
    for grant in sorted(grants, key=lambda one: one.name):
        for who in grant.granted.principals:
            granted[who] += grant.granted.permissions
            if grant.granted.quota:
                quotas[who] = least((quotas.get(who, UNBOUNDED), grant.granted.quota))
    rows = {one.digest: TokenRow(one.id, one.who, one.digest, one.expires_ms) for one in tokens}
    return Charter(version, dict(granted), rows, quotas)
