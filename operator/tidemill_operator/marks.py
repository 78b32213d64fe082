"""Labels, annotations and the finalizer by which the operator and people talk about an object; and times in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tidemill_operator.steps import Manifest
from tidemill_wire.schema import parse_timestamp

FINALIZER = "tidemill.dev/finalizer"

PAUSED = "tidemill.dev/paused"
"""``"true"``: the operator looks, and does nothing."""
MANAGED = "tidemill.dev/managed"
"""``"false"``: the operator lets go, and deletes nothing."""
SEEK = "tidemill.dev/seek"
"""A command to a ConsumerGroup; see ``seeking.py``."""
APPLIED = "tidemill.dev/applied"
"""On what the operator makes: a sum of the manifest that it last sent, so that it need not send it again."""

CLUSTER_LABEL = "tidemill.dev/cluster"
BROKER_GROUP_LABEL = "tidemill.dev/broker-group"
CONSUMES_LABEL = "tidemill.dev/consumes"
"""On pods of people's own: the QueueCluster that their consumers consume from."""
NAME_LABEL = "app.kubernetes.io/name"
PRODUCT = "tidemill"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "tidemill-operator"

DAY_MS = 86_400_000


def part(block: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """A block of a manifest, down a path of names; empty when it is not there."""
    found: Any = block
    for name in names:
        found = found.get(name) if found else None
    return cast("Mapping[str, Any]", found or {})


def rows(block: Mapping[str, Any] | None, *names: str) -> Sequence[Mapping[str, Any]]:
    """A list of blocks, down a path of names; empty when it is not there."""
    found: Any = part(block, *names[:-1]).get(names[-1])
    return cast("Sequence[Mapping[str, Any]]", found or ())


def metadata(resource: Manifest) -> Mapping[str, Any]:
    return part(resource, "metadata")


def spec(resource: Manifest) -> Mapping[str, Any]:
    return part(resource, "spec")


def status(resource: Manifest) -> Mapping[str, Any]:
    return part(resource, "status")


def annotation(resource: Manifest, name: str) -> str | None:
    return part(resource, "metadata", "annotations").get(name)


def finalizers(resource: Manifest) -> list[str]:
    return list(metadata(resource).get("finalizers") or ())


def label(resource: Manifest, name: str) -> str:
    return str(part(resource, "metadata", "labels").get(name, ""))


def is_paused(resource: Manifest) -> bool:
    return annotation(resource, PAUSED) == "true"


def is_unmanaged(resource: Manifest) -> bool:
    return annotation(resource, MANAGED) == "false"


def goes(resource: Manifest) -> bool:
    """Whether somebody deleted it; with finalizers it is still there."""
    return "deletionTimestamp" in metadata(resource)


def is_held(resource: Manifest) -> bool:
    return FINALIZER in finalizers(resource)


def cluster_of(resource: Manifest) -> str:
    """The name of the QueueCluster that the spec names."""
    return str(part(resource, "spec", "clusterRef").get("name", ""))


def condition_of(resource: Manifest, kind: str) -> Mapping[str, Any]:
    """What stands there of that condition; empty when nothing does."""
    none: Mapping[str, Any] = {}
    return next((one for one in rows(resource, "status", "conditions") if one.get("type") == kind), none)


def timestamp(at_ms: int) -> str:
    """RFC 3339, in whole seconds, as Kubernetes writes it."""
    days, rest = divmod(at_ms, DAY_MS)
    # Years that begin in March, in spans of 400: leap days come last, and the months are of one pattern.
    span, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = span * 400 + year + (1 if month <= 2 else 0)
    seconds = rest // 1000
    return (
        f"{year:04}-{month:02}-{day_of_month:02}T"
        f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
    )


def micro_timestamp(at_ms: int) -> str:
    """The same with six digits behind the point, which leases and events want."""
    return f"{timestamp(at_ms)[:-1]}.{at_ms % 1000:03}000Z"


def moment(written: object) -> int | None:
    """Milliseconds since 1970 of a time as Kubernetes writes it; None when it is none."""
    return parse_timestamp(written) if isinstance(written, str) else None
