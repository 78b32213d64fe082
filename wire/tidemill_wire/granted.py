"""A Grant as people declare it, and as meta keeps it: who, by their kind and name, and what they may do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tidemill_wire.access import CLUSTER, NOBODY, Operation, Permission
from tidemill_wire.errors import Refused
from tidemill_wire.grant_specs import MATCH_PATTERN, GrantSpec
from tidemill_wire.limits import CONNECTIONS_MAX, KIB
from tidemill_wire.quantities import SIZE_MAX
from tidemill_wire.quotas import UNBOUNDED, Quota, Rates
from tidemill_wire.resources import Resource
from tidemill_wire.schema import NUMBER_MAX

KINDS = {"Token": "token", "Certificate": "certificate", "ServiceAccount": "serviceaccount"}
WHO = re.compile(r"(token|certificate|serviceaccount):[\x21-\x7e]{1,317}")
PATTERN = re.compile(MATCH_PATTERN)
ITEMS_MAX = 64
GRANT_FIELDS = frozenset({"principals", "permissions", "quota"})
QUOTA_BOUNDS = {"messages": (1, NUMBER_MAX), "bytes": (KIB, SIZE_MAX), "connections": (1, CONNECTIONS_MAX),
                "in_flight": (1, NUMBER_MAX)}  # fmt: skip
PERMISSION_FIELDS = frozenset({"subjects", "operations", "groups"})


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant: what any of the principals may do."""

    principals: tuple[str, ...]
    permissions: tuple[Permission, ...]
    quota: Quota = UNBOUNDED
    """What each of the principals may use of each service."""

    def to_map(self) -> dict[str, Any]:
        permissions = [one.to_map() for one in self.permissions]
        said = {"principals": list(self.principals), "permissions": permissions}
        return {**said, "quota": self.quota.to_map()} if self.quota else said


def declared_grant(resource: Resource) -> Granted:
    """Of a Grant in a file."""
    spec = resource.spec
    assert isinstance(spec, GrantSpec)
    namespace = resource.metadata.namespace or "default"
    principals = tuple(
        f"serviceaccount:{one.namespace or namespace}/{one.name}"
        if one.kind == "ServiceAccount"
        else f"{KINDS[one.kind]}:{one.name}"
        for one in spec.principals
    )
    permissions = tuple(
        Permission(frozenset(map(Operation, one.operations)), one.subjects, one.consumer_groups)
        for one in spec.permissions
    )
    asked = spec.quota
    rates = Rates(asked.messages_per_second or 0, asked.bytes_per_second or 0)
    return Granted(principals, permissions, Quota(rates, asked.connections or 0, asked.in_flight or 0))


def parse_grant(body: object) -> Granted:
    """Of a request, or ``Refused`` with what is wrong."""
    asked = _fields(body, GRANT_FIELDS, "a grant")
    principals = tuple(parse_who(one) for one in _items(asked, "principals"))
    permissions = tuple(_parse_permission(one) for one in _items(asked, "permissions"))
    return Granted(principals, permissions, _parse_quota(asked["quota"]) if "quota" in asked else UNBOUNDED)


def parse_who(written: object) -> str:
    """Somebody's name with its kind. Without a kind it is a token's."""
    if isinstance(written, str) and ":" not in written:
        written = f"token:{written}"
    if not isinstance(written, str) or written in {CLUSTER, NOBODY} or not WHO.fullmatch(written):
        raise _wrong(f"{str(written)[:60]!r} is nobody: write token:NAME or certificate:NAME")
    return written


def _parse_permission(body: object) -> Permission:
    asked = _fields(body, PERMISSION_FIELDS, "a permission")
    subjects = _patterns(_items(asked, "subjects"))
    groups = _patterns(_items(asked, "groups", 0))
    words = [one.value for one in Operation]
    operations = _items(asked, "operations")
    for one in operations:
        if one not in words:
            raise _wrong(f"{str(one)[:60]!r} is no operation: write {', '.join(words)}")
    found = frozenset(map(Operation, cast("list[str]", operations)))
    if groups and Operation.CONSUME not in found:
        raise _wrong("groups have no meaning without Consume")
    return Permission(found, subjects, groups)


def _parse_quota(body: object) -> Quota:
    asked = _fields(body, frozenset(QUOTA_BOUNDS), "a quota")
    for name, number in asked.items():
        least, most = QUOTA_BOUNDS[name]
        if type(number) is not int or not least <= number <= most:
            raise _wrong(
                f"{name} of a quota is {str(number)[:60]!r}: write a whole number from {least} to {most}"
            )
    return Quota.from_map(asked)


def _patterns(written: Iterable[object]) -> tuple[str, ...]:
    for one in written:
        if not isinstance(one, str) or not PATTERN.fullmatch(one):
            raise _wrong(f"{str(one)[:60]!r} is no name, and no beginning of names with a *")
    return tuple(cast("Iterable[str]", written))


def _fields(body: object, known: frozenset[str], what: str) -> Mapping[str, object]:
    if not isinstance(body, dict):
        raise _wrong(f"{what} is no JSON object")
    asked = cast("Mapping[str, object]", body)
    for name in asked:
        if name not in known:
            raise _wrong(f"{what} has no field {str(name)[:60]!r}: {', '.join(sorted(known))} are there")
    return asked


def _items(asked: Mapping[str, object], name: str, least: int = 1) -> list[object]:
    found = asked.get(name, [])
    if not isinstance(found, list) or not least <= len(cast("list[object]", found)) <= ITEMS_MAX:
        raise _wrong(f"{name} is no list of {least} to {ITEMS_MAX}")
    return cast("list[object]", found)


def _wrong(detail: str) -> Refused:
    return Refused("malformed_command", detail)
