"""Labels, annotations and the finalizer by which the operator and people talk about an object; and times in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from tidemill_operator.steps import Manifest
from tidemill_wire.schema import parse_timestamp

FINALIZER = "tidemill.dev/finalizer"

PAUSED = "tidemill.dev/paused"
"""``"true"``: the operator looks, and does nothing."""
MANAGED = "tidemill.dev/managed"
"""``"false"``: the operator lets go, and deletes nothing."""
SEEK = "tidemill.dev/seek"
"""A command to a ConsumerGroup; see ``seeking.py``."""
RESTART_AT = "tidemill.dev/rolling-restart-at"
SKIP_DRAIN = "tidemill.dev/skip-drain-check"
INPUT_HASH = "tidemill.dev/input-hash"
"""On a workload: what people said that its pods are made of."""
TEMPLATE_HASH = "tidemill.dev/template-hash"
"""On a workload: its pods' template, as the operator that applied it made it."""
APPLIED = "tidemill.dev/applied"
"""On what the operator makes: a sum of the manifest that it last sent, so that it need not send it again."""

CLUSTER_LABEL = "tidemill.dev/cluster"
BROKER_GROUP_LABEL = "tidemill.dev/broker-group"
ROLE_LABEL = "tidemill.dev/role"
ARCHIVE_LABEL = "tidemill.dev/archive"
"""On what runs for an Archive, at any remove."""
REPLAY_LABEL = "tidemill.dev/replay"
ACCESS_LABEL = "tidemill.dev/access"
"""On namespaces: who is in them may connect."""
CONSUMES_LABEL = "tidemill.dev/consumes"
"""On pods of people's own: the QueueCluster that their consumers consume from."""
NAME_LABEL = "app.kubernetes.io/name"
PRODUCT = "tidemill"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
PART_LABEL = "app.kubernetes.io/part-of"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "tidemill-operator"

DAY_MS = 86_400_000


def part(block: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """A block of a manifest, down a path of names; empty when it is not there."""
    found: Any = block
    for name in names:
        found = found.get(name) if found else None
    return cast("Mapping[str, Any]", found or {})


def rows(block: Mapping[str, Any] | None, *names: str) -> Sequence[Any]:
    """A list, down a path of names; empty when it is not there."""
    found: Any = part(block, *names[:-1]).get(names[-1])
    return cast("Sequence[Any]", found or ())


def metadata(resource: Manifest | None) -> Mapping[str, Any]:
    return part(resource, "metadata")


def named(resource: Manifest, *names: str) -> dict[str, Any]:
    """The beginning of a manifest, with no more of the metadata than is named."""
    found = {name: metadata(resource)[name] for name in names if name in metadata(resource)}
    return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], "metadata": found}


def spec(resource: Manifest | None) -> Mapping[str, Any]:
    return part(resource, "spec")


def status(resource: Manifest | None) -> Mapping[str, Any]:
    return part(resource, "status")


def annotation(resource: Manifest | None, name: str) -> str:
    """What an annotation says; empty when it is not there."""
    return command(resource, name) or ""


def command(resource: Manifest | None, name: str) -> str | None:
    """The same of one that is to be obeyed and taken away; None when it is not there: an empty one is a mistake."""
    return part(resource, "metadata", "annotations").get(name)


def finalizers(resource: Manifest) -> list[str]:
    return list(metadata(resource).get("finalizers") or ())


def label(resource: Manifest | None, name: str) -> str:
    return str(part(resource, "metadata", "labels").get(name, ""))


def is_on(resource: Manifest | None, name: str) -> bool:
    return annotation(resource, name) == "true"


def is_paused(resource: Manifest) -> bool:
    return is_on(resource, PAUSED)


def is_unmanaged(resource: Manifest) -> bool:
    return annotation(resource, MANAGED) == "false"


def stopped(resource: Manifest) -> Literal["", "Paused", "Unmanaged"]:
    """The condition that says why nothing is to be done, by order of a person; empty: there is none. Who is let go
    stays let go, whatever else is written there.
    """
    if is_unmanaged(resource):
        return "Unmanaged"
    return "Paused" if is_paused(resource) else ""


def goes(resource: Manifest | None) -> bool:
    """Whether somebody deleted it; with finalizers it is still there."""
    return "deletionTimestamp" in metadata(resource)


def is_held(resource: Manifest) -> bool:
    return FINALIZER in finalizers(resource)


def cluster_of(resource: Manifest) -> str:
    """The name of the QueueCluster that the spec names."""
    return str(part(resource, "spec", "clusterRef").get("name", ""))


def condition_of(resource: Manifest | None, kind: str) -> Mapping[str, Any]:
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
