"""Meta of a cluster: a Deployment where PostgreSQL keeps its data, else a StatefulSet of one with SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill_operator.desired.around import metadata, service, settings_name, surroundings, variables
from tidemill_operator.desired.pods import DATA_FOLDER, OUTLIVES_SECONDS, Process, template
from tidemill_operator.desired.wanted import Cluster
from tidemill_operator.desired.workloads import claim_template
from tidemill_operator.kinds import DEPLOYMENT, STATEFUL_SET
from tidemill_operator.names import META_PORT, canary_page, labels_of, meta_name, selector_labels
from tidemill_operator.steps import Manifest

PORTS = {"http": META_PORT}


def around(cluster: Cluster, owner: Mapping[str, Any]) -> tuple[Manifest, ...]:
    """All but the workload."""
    name, selector = meta_name(cluster.name), selector_labels(cluster.name, "meta")
    own = metadata(name, cluster.namespace, labels_of(cluster.name, "meta"), owner)
    return surroundings(own, _settings(cluster), (service(own, selector, PORTS),), cluster)


def pods_of(cluster: Cluster) -> dict[str, Any]:
    """The template of meta's pods."""
    name = meta_name(cluster.name)
    command = ["python", "-m", "tidemill_meta", "--host", "0.0.0.0", "--port", str(META_PORT)]
    environment: tuple[Manifest, ...] = ()
    if cluster.meta_database is None:
        command += ["--data", DATA_FOLDER]
    else:
        secret = {"secretKeyRef": dict(cluster.meta_database)}
        environment = ({"name": "TIDEMILL_META_DATABASE", "valueFrom": secret},)
    if cluster.canary is not None:
        page = canary_page(cluster.name, cluster.namespace)
        environment = (*environment, {"name": "TIDEMILL_META_CANARY", "value": page})
    process = Process(
        "meta",
        tuple(command),
        PORTS,
        environment,
        settings_name(name, _settings(cluster)),
        name,
        keeps_data=cluster.meta_database is None,
        stop_seconds=OUTLIVES_SECONDS,
        avoids=("broker",),
    )
    return template(
        process,
        cluster.meta_pods,
        selector_labels(cluster.name, "meta"),
        labels_of(cluster.name, "meta"),
    )


def workload(
    cluster: Cluster,
    owner: Mapping[str, Any],
    pods: Manifest,
    annotations: Mapping[str, str],
    claims: Sequence[Manifest],
) -> Manifest:
    """What makes the pods. ``pods`` is their template, which may be one of an operator before; ``claims`` that of their
    volumes, if there is one already.
    """
    name, selector = meta_name(cluster.name), selector_labels(cluster.name, "meta")
    own = metadata(
        name, cluster.namespace, labels_of(cluster.name, "meta"), owner, annotations=dict(annotations)
    )
    spec: dict[str, Any] = {
        "replicas": cluster.meta_replicas,
        "selector": {"matchLabels": selector},
        "template": pods,
    }
    if cluster.meta_database is not None:
        rolling = {"maxUnavailable": 0, "maxSurge": 1}
        spec |= {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
        return {**DEPLOYMENT.header, "metadata": own, "spec": spec}
    storage = cluster.meta_storage
    spec |= {
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": storage.when_deleted,
            "whenScaled": storage.when_scaled,
        },
        "volumeClaimTemplates": list(claims) or [claim_template(storage, labels_of(cluster.name, "meta"))],
    }
    return {**STATEFUL_SET.header, "metadata": own, "spec": spec}


def _settings(cluster: Cluster) -> dict[str, str]:
    return variables("TIDEMILL_META_", cluster.meta_settings)
