"""A broker group, or a delay group: one StatefulSet of a master and its slaves, and what stands around it.

`OnDelete`, because only ``rollout.py`` says which broker is replaced; `Parallel`, because none waits for another to
begin. Who is master is not in here: that is meta's business, and changes without Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill_operator.desired.around import metadata, service, settings_name, surroundings, variables
from tidemill_operator.desired.pods import DATA_FOLDER, Process, from_field, template
from tidemill_operator.desired.wanted import Group
from tidemill_operator.kinds import STATEFUL_SET
from tidemill_operator.marks import ROLE_LABEL
from tidemill_operator.names import META_PORT, labels_of, meta_host, selector_labels
from tidemill_operator.steps import Manifest

PORTS = {"broker": {"data": 7400, "http": 7401}, "delay": {"data": 7402, "http": 7403}}
PREFIXES = {"broker": "TIDEMILL_", "delay": "TIDEMILL_DELAY_"}
COMMANDS = {
    "broker": ("python", "-m", "tidemill_broker", "up"),
    "delay": ("python", "-m", "tidemill_delay"),
}
REVISIONS = 10


def selector_of(group: Group) -> dict[str, str]:
    return selector_labels(group.cluster, group.service, group.name)


def all_labels(group: Group) -> dict[str, str]:
    return labels_of(group.cluster, group.service, group.name)


def around(group: Group, owner: Mapping[str, Any]) -> tuple[Manifest, ...]:
    """All but the workload. The Service for clients leads to the master, by a label that follows meta; who asks meta
    needs none.
    """
    ports, selector = PORTS[group.service], selector_of(group)
    own = metadata(group.workload, group.namespace, all_labels(group), owner)
    services = (
        service(own, selector, ports, headless=True),
        service({**own, "name": f"{group.workload}-client"}, {**selector, ROLE_LABEL: "master"}, ports),
    )
    return surroundings(own, _settings(group), services, group)


def pods_of(group: Group) -> dict[str, Any]:
    """The template of a group's pods: the same for all, so that whoever is master may be another one tomorrow."""
    ports, prefix = PORTS[group.service], PREFIXES[group.service]
    command = (
        *COMMANDS[group.service],
        *("--data", DATA_FOLDER, "--host", "0.0.0.0"),
        *("--port", str(ports["data"]), "--http-port", str(ports["http"])),
    )
    told = {
        # The ordinal, and not the pod's name: what stands before the first dash is the group, as meta knows it.
        f"{prefix}NAME": f"{group.group}-$(POD_INDEX)",
        f"{prefix}REPLICATED": "true",
        f"{prefix}META": f"{meta_host(group.cluster, group.namespace)}:{META_PORT}",
        f"{prefix}DURABILITY": group.durability,
        f"{prefix}ADVERTISE": f"$(POD_NAME).{group.workload}.{group.namespace}.svc",
    }
    if group.labels and group.service == "broker":
        told[f"{prefix}LABELS"] = ",".join(f"{k}={v}" for k, v in sorted(group.labels.items()))
    environment: tuple[Manifest, ...] = (
        from_field("POD_NAME", "metadata.name"),
        from_field("POD_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"),
        *({"name": name, "value": value} for name, value in told.items()),
    )
    process = Process(
        group.service,
        command,
        ports,
        environment,
        settings_name(group.workload, _settings(group)),
        group.workload,
    )
    return template(process, group.pods, selector_of(group), all_labels(group))


def workload(
    group: Group,
    owner: Mapping[str, Any],
    pods: Manifest,
    annotations: Mapping[str, str],
    replicas: int,
    claims: Sequence[Manifest],
    retention: Mapping[str, str],
) -> Manifest:
    """The StatefulSet. What of it cannot be changed (``claims``) is as the planner found it."""
    own = metadata(group.workload, group.namespace, all_labels(group), owner, annotations=dict(annotations))
    return {
        **STATEFUL_SET.header,
        "metadata": own,
        "spec": {
            "serviceName": group.workload,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": REVISIONS,
            "persistentVolumeClaimRetentionPolicy": dict(retention),
            "selector": {"matchLabels": selector_of(group)},
            "template": pods,
            "volumeClaimTemplates": list(claims),
        },
    }


def _settings(group: Group) -> dict[str, str]:
    return variables(PREFIXES[group.service], group.settings)
