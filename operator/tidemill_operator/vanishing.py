"""Pods of consumers that are gone: meta is told, so that nobody waits for their leases.

A pod says by the label ``tidemill.dev/consumes`` which QueueCluster it consumes from. It is gone when Kubernetes has
deleted it, or says that it has ended: until then its consumers may be at work, whatever its node says of itself. A word
that is missed costs the ten seconds after which a lease without a connection ends anyway: it is not repeated for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill_operator import marks
from tidemill_operator.kinds import POD, QUEUE_CLUSTER, Kind
from tidemill_operator.steps import Ask
from tidemill_operator.store import Key

VANISHED = "Vanished"
"""The kind of a key that says so; its name is the cluster's and the pod's uid."""
ENDED = frozenset({"Succeeded", "Failed"})
TRIES_MAX = 3


def vanished(kind: Kind, change: str | None, written: Mapping[str, Any]) -> Key | None:
    """What there is to tell, when a watch says something of an object."""
    if kind is not POD:
        return None
    cluster, metadata = marks.label(written, marks.CONSUMES_LABEL), marks.metadata(written)
    ended = change == "DELETED" or (change is not None and marks.status(written).get("phase") in ENDED)
    return (
        Key(VANISHED, metadata.get("namespace", ""), f"{cluster}/{metadata['uid']}")
        if cluster and ended
        else None
    )


def cluster_key(key: Key) -> Key:
    """The QueueCluster whose meta is told."""
    return Key(QUEUE_CLUSTER.kind, key.namespace, key.name.partition("/")[0])


def goodbye(key: Key) -> Ask:
    return Ask("POST", "/v1/clients/vanished", {"pod": key.name.partition("/")[2]})
