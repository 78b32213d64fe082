"""What stands around a workload, and is of a few lines: services, accounts, budgets, policies, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill_operator.desired.wanted import SpecError
from tidemill_operator.names import ACCESS, OPERATOR, PRODUCT

OWN_SETTINGS = {"name", "replicated", "meta", "advertise", "labels", "durability"}
"""What the operator tells a process itself."""


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
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def account(meta: dict[str, Any]) -> dict[str, Any]:
    """Who the pods are to Kubernetes: nobody, they ask it nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": meta,
        "automountServiceAccountToken": False,
    }


def budget(meta: dict[str, Any], selector: Mapping[str, str]) -> dict[str, Any]:
    """Who drains machines takes one at a time, and may always take what does not run anyway."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def settings(meta: dict[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


def variables(prefix: str, said: Mapping[str, str]) -> dict[str, str]:
    """Settings as the process reads them: ``checkpoint_events`` is TIDEMILL_CHECKPOINT_EVENTS. It does so when it
    starts, so each of them wants new pods.
    """
    for name in said:
        if name in OWN_SETTINGS:
            raise SpecError(f"spec.config holds {name}, which the operator sets: drop it")
    return {prefix + name.upper(): value for name, value in sorted(said.items())}


def policy(
    meta: dict[str, Any],
    selector: Mapping[str, str],
    open_ports: Sequence[int],
    held_ports: Sequence[int],
    clients: str,
) -> dict[str, Any]:
    """``open_ports`` take clients; ``held_ports``, which obey whoever reaches them, only those who may decide: the
    pods of tidemill, the operator, and pods or namespaces that somebody has marked.
    """
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": PRODUCT}}}
    deciders: list[dict[str, Any]] = [
        own,
        {"podSelector": {"matchLabels": {ACCESS: "control"}}},
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": OPERATOR}}},
        {"namespaceSelector": {"matchLabels": {ACCESS: "control"}}},
    ]
    anybody: dict[str, Any] = {"namespaceSelector": {}} if clients == "AnyNamespace" else {"podSelector": {}}
    marked = {"namespaceSelector": {"matchLabels": {ACCESS: "client"}}}
    rules: list[dict[str, Any]] = []
    if open_ports:
        rules.append({"from": [anybody, marked, *deciders[1:]], "ports": _tcp(open_ports)})
    if held_ports:
        rules.append({"from": deciders, "ports": _tcp(held_ports)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta,
        "spec": {
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _tcp(ports: Sequence[int]) -> list[dict[str, Any]]:
    return [{"port": one, "protocol": "TCP"} for one in ports]
