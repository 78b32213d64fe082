"""The canary of a cluster: a Deployment of one, and what it needs to be let in. It asks, and serves nobody but a page.

`Recreate`: two canaries of one name would each be given a part of the other's probes, and judge nothing meanwhile.
It has no more than its Grant, never the cluster's token: who breaks into it may send to its own subjects, and consume
from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill_operator.desired.around import account, metadata, policy, service
from tidemill_operator.desired.locks import Files, Locks, as_account, of_client
from tidemill_operator.desired.pods import Process, template
from tidemill_operator.desired.wanted import Canary, Cluster
from tidemill_operator.kinds import DEPLOYMENT, GRANT
from tidemill_operator.names import CANARY_PORT, META_PORT, canary_name, labels_of, meta_host, selector_labels
from tidemill_operator.steps import Manifest

COMPONENT = "canary"
PAGE = "metrics"
"""Not `http`: services have their locks there, and it has none."""
PORTS = {PAGE: CANARY_PORT}
SUBJECTS = "tidemill.canary.*"
OPERATIONS = ("Send", "Consume", "Admin")
"""Admin: it declares its subjects itself."""


def around(cluster: Cluster, canary: Canary, owner: Mapping[str, Any]) -> tuple[Manifest, ...]:
    """All but the workload."""
    name, selector = canary_name(cluster.name), selector_labels(cluster.name, COMPONENT)
    own = metadata(name, cluster.namespace, labels_of(cluster.name, COMPONENT), owner)
    page = service(own, selector, PORTS)
    # What it says is wanted most of all when it cannot work.
    page["spec"]["publishNotReadyAddresses"] = True
    found: list[Manifest] = [account(own), page]
    if "networkPolicy" in cluster.generates:
        found.append(policy(own, selector, PORTS.values(), cluster.clients))
    if canary.pods.locks.token is not None:
        found.append(_grant(own, cluster.name, canary))
    return tuple(found)


def pods_of(cluster: Cluster, canary: Canary) -> dict[str, Any]:
    """The template of its pod."""
    name, selector = canary_name(cluster.name), selector_labels(cluster.name, COMPONENT)
    command = ("tidemill", "canary", "--metrics-port", str(PORTS[PAGE]))
    seconds = f"{canary.interval_ms / 1000:g}"
    process = Process(
        COMPONENT,
        (*command, "--interval", seconds),
        PORTS,
        ({"name": "TIDEMILL_SERVER", "value": f"{meta_host(cluster.name, cluster.namespace)}:{META_PORT}"},),
        "",
        name,
        keeps_data=False,
        page=PAGE,
        has=_files(canary),
    )
    return template(process, canary.pods, selector, labels_of(cluster.name, COMPONENT))


def workload(
    cluster: Cluster, owner: Mapping[str, Any], pods: Manifest, annotations: Mapping[str, str]
) -> Manifest:
    """What makes the pod. ``pods`` is its template, which may be one of an operator before."""
    name, selector = canary_name(cluster.name), selector_labels(cluster.name, COMPONENT)
    labels = labels_of(cluster.name, COMPONENT)
    return {
        **DEPLOYMENT.header,
        "metadata": metadata(name, cluster.namespace, labels, owner, annotations=dict(annotations)),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": pods,
        },
    }


def is_nobody(canary: Canary) -> bool:
    """Whether the cluster would ask it who it is, and it could not say."""
    locks = canary.pods.locks
    return locks.token is not None and not locks.audience and canary.token is None


def _files(canary: Canary) -> tuple[Files, ...]:
    locks = canary.pods.locks
    authority = of_client(replace(locks, token=None))
    if locks.token is None:
        return (authority,)
    if canary.token is None:
        return authority, as_account(locks)
    return authority, of_client(Locks(token=canary.token))


def _grant(own: dict[str, Any], cluster: str, canary: Canary) -> Manifest:
    who: dict[str, Any] = {"kind": "ServiceAccount", "name": own["name"]}
    if canary.token is not None:
        secret = {"name": canary.token.secret, "key": canary.token.key}
        who = {"kind": "Token", "name": own["name"], "secretRef": secret}
    permission = {"subjects": [SUBJECTS], "operations": list(OPERATIONS)}
    spec = {"clusterRef": {"name": cluster}, "principals": [who], "permissions": [permission]}
    return {**GRANT.header, "metadata": own, "spec": spec}
