"""What stands around a workload, and is of a few lines: services, accounts, budgets, policies, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill_operator.desired.wanted import Cluster, Group, SpecError
from tidemill_operator.kinds import CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, SERVICE, SERVICE_ACCOUNT
from tidemill_operator.marks import ACCESS_LABEL, MANAGER, NAME_LABEL
from tidemill_operator.names import HASH_CHARS, digest
from tidemill_operator.steps import Manifest
from tidemill_wire.cluster_specs import BROKERS_OWN

OWN_SETTINGS = frozenset(BROKERS_OWN)
"""What the operator tells a process itself."""


def surroundings(
    own: dict[str, Any], data: Mapping[str, str], services: Iterable[Manifest], wanted: Cluster | Group
) -> tuple[Manifest, ...]:
    """All but the workload that ``own`` is the metadata of, with the first of its services, which is its own."""
    services = tuple(services)
    selector = services[0]["spec"]["selector"]
    ports = [one["port"] for one in services[0]["spec"]["ports"]]
    found: list[Manifest] = [account(own), *settings(own, own["name"], data), *services]
    if "podDisruptionBudget" in wanted.generates:
        found.append(budget(own, selector))
    if "networkPolicy" in wanted.generates:
        found.append(policy(own, selector, ports, wanted.clients))
    return tuple(found)


def metadata(
    name: str, namespace: str, labels: Mapping[str, str], owner: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "ownerReferences": [dict(owner)],
        **more,
    }


def service(
    meta: dict[str, Any], selector: Mapping[str, str], ports: Mapping[str, int], *, headless: bool = False
) -> dict[str, Any]:
    """Headless: names for pods, whether they are ready or not, for who is to become ready has to be reached before."""
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        "selector": dict(selector),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            for name, port in ports.items()
        ],
    }
    if headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {**SERVICE.header, "metadata": meta, "spec": spec}


def account(meta: dict[str, Any]) -> dict[str, Any]:
    """Who the pods are to Kubernetes: nobody, they ask it nothing."""
    return {**SERVICE_ACCOUNT.header, "metadata": meta, "automountServiceAccountToken": False}


def budget(meta: dict[str, Any], selector: Mapping[str, str]) -> dict[str, Any]:
    """Who drains machines takes one at a time, and may always take what does not run anyway."""
    return {
        **DISRUPTION_BUDGET.header,
        "metadata": meta,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def settings_name(workload: str, data: Mapping[str, str]) -> str:
    """Of the ConfigMap with settings: another one for others, so that a process that starts again in its pod has the
    settings that the pod was made with, and new ones come with new pods, one after the other. Empty: nothing is set.
    """
    return f"{settings_prefix(workload)}{digest(data, HASH_CHARS)}" if data else ""


def settings_prefix(workload: str) -> str:
    return f"{workload}-settings-"


def config_map(meta: dict[str, Any], data: Mapping[str, str], *, immutable: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {**CONFIG_MAP.header, "metadata": meta, "data": dict(data)}
    return found | ({"immutable": True} if immutable else {})


def settings(own: dict[str, Any], workload: str, data: Mapping[str, str]) -> list[Manifest]:
    """The ConfigMap, if there is anything in it."""
    name = settings_name(workload, data)
    return [config_map({**own, "name": name}, data, immutable=True)] if name else []


def variables(prefix: str, said: Mapping[str, str]) -> dict[str, str]:
    """Settings as the process reads them: ``checkpoint_events`` is TIDEMILL_CHECKPOINT_EVENTS. It does so when it
    starts, so each of them wants new pods.
    """
    for name in said:
        if name in OWN_SETTINGS:
            raise SpecError(f"spec.config holds {name}, which the operator sets: drop it")
    return {prefix + name.upper(): value for name, value in sorted(said.items())}


def policy(
    meta: dict[str, Any], selector: Mapping[str, str], ports: Iterable[int], clients: str
) -> dict[str, Any]:
    """Who may connect: pods of the namespace, or of all; the operator, wherever it is; namespaces that somebody has
    marked, as that of Prometheus.
    """
    anybody: dict[str, Any] = {"namespaceSelector": {}} if clients == "AnyNamespace" else {"podSelector": {}}
    peers: list[dict[str, Any]] = [
        anybody,
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {NAME_LABEL: MANAGER}}},
        {"namespaceSelector": {"matchLabels": {ACCESS_LABEL: "client"}}},
    ]
    allowed = [{"port": one, "protocol": "TCP"} for one in ports]
    return {
        **NETWORK_POLICY.header,
        "metadata": meta,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers, "ports": allowed}],
        },
    }
