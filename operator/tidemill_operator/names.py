"""How objects are called, and found again; what their labels and annotations are called is in ``marks.py``.

Selectors are of ``selector_labels`` alone, and never change. Names are made of names, so that the same object is found
again without a record of it; what does not fit into Kubernetes' bounds is cut, and told apart by a hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tidemill_operator import marks
from tidemill_operator.kinds import Kind
from tidemill_operator.steps import Delete, Manifest, Reference

WORKLOAD_CHARS_MAX = 40
"""Of a StatefulSet: its revisions' names have eleven more, and are labels of pods, of 63 at most."""
LABEL_CHARS_MAX = 63
HASH_CHARS = 8
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
GROUP_NAME = re.compile(r"[a-z0-9]{1,30}")
"""A broker is known by what stands before the first dash of its name, so a group has none."""

META_PORT = 7401
CANARY_PORT = 9465


def digest(value: object, chars: int = 16) -> str:
    """The same for values that are equal, whatever the order of their keys."""
    written = json.dumps(value, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(written.encode()).hexdigest()[:chars]


def dns_label(name: str, chars_max: int = WORKLOAD_CHARS_MAX) -> str:
    """The name, if a Service may have it; else what is left of it, and a hash."""
    if len(name) <= chars_max and DNS_LABEL.fullmatch(name):
        return name
    left = re.sub(r"[^-a-z0-9]+", "-", name.lower()).strip("-")
    left = left if left[:1].isalpha() else f"{marks.PRODUCT}-{left}"
    return f"{left[: chars_max - HASH_CHARS - 1].rstrip('-')}-{digest(name, HASH_CHARS)}"


def group_object_name(cluster: str, group: str) -> str:
    """Of the BrokerGroup that stands in a cluster's list."""
    return dns_label(f"{cluster}-{group}")


def workload_name(broker_group: str) -> str:
    """Of a broker group's StatefulSet, its Service, and what else it has one of."""
    return dns_label(broker_group)


def pod_name(workload: str, ordinal: int) -> str:
    return f"{workload}-{ordinal}"


def claim_name(workload: str, ordinal: int) -> str:
    """Of a pod's volume, as the StatefulSet's controller makes it."""
    return f"data-{workload}-{ordinal}"


def broker_name(group: str, ordinal: int) -> str:
    """As meta knows a broker."""
    return f"{group}-{ordinal}"


def meta_name(cluster: str) -> str:
    return dns_label(f"{cluster}-meta")


def canary_name(cluster: str) -> str:
    return dns_label(f"{cluster}-canary")


def canary_page(cluster: str, namespace: str) -> str:
    """Where a canary's page is, for who asks."""
    return f"{canary_name(cluster)}.{namespace}.svc:{CANARY_PORT}"


def meta_host(cluster: str, namespace: str) -> str:
    """A Service's name stays when its pods go: who is told it is never told anew."""
    return f"{meta_name(cluster)}.{namespace}.svc"


def selector_labels(cluster: str, component: str, group: str = "") -> dict[str, str]:
    """By which pods are found. They never change."""
    labels = {
        marks.NAME_LABEL: marks.PRODUCT,
        marks.INSTANCE_LABEL: label_value(cluster),
        marks.COMPONENT_LABEL: component,
    }
    return labels | ({marks.BROKER_GROUP_LABEL: label_value(group)} if group else {})


def labels_of(cluster: str, component: str, group: str = "") -> dict[str, str]:
    """Of every object that the operator makes. No version: it would be in the pods' template."""
    return selector_labels(cluster, component, group) | {
        marks.PART_LABEL: marks.PRODUCT,
        marks.MANAGER_LABEL: marks.MANAGER,
        marks.CLUSTER_LABEL: label_value(cluster),
    }


def label_value(text: str) -> str:
    """A text as a label can have it."""
    return text if len(text) <= LABEL_CHARS_MAX else dns_label(text, LABEL_CHARS_MAX)


def group_name(broker_group: Manifest) -> str:
    """As meta knows the group of a BrokerGroup."""
    return str(marks.spec(broker_group).get("groupName") or broker_group["metadata"]["name"])


def owner_of(resource: Manifest) -> dict[str, Any]:
    """The reference by which an object goes with its owner."""
    metadata = resource["metadata"]
    return {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(manifest: Manifest) -> str:
    """The uid of an object's owner that decides; empty when there is none."""
    owners = marks.rows(manifest, "metadata", "ownerReferences")
    return next((str(one.get("uid", "")) for one in owners if one.get("controller")), "")


def identity(resource: Manifest, **more: Any) -> dict[str, Any]:
    """Which object, and no other one of its name: an apply must not make anew what is gone."""
    found = marks.named(resource, "name", "namespace", "uid")
    found["metadata"] |= more
    return found


def deletion_of(kind: Kind, manifest: Manifest, *, orphan: bool = False) -> Delete:
    """Of this very object, which the API server would not find under another kind."""
    metadata = manifest["metadata"]
    reference = Reference(kind.api_version, kind.kind, metadata.get("namespace", ""), metadata["name"])
    return Delete(reference, metadata["uid"], orphan=orphan)
