"""What the operator makes of each example, as a person reviews it: ``operator/*.yaml``.

A difference in git is a difference in somebody's cluster. ``REWRITE=1 pytest tests/golden/test_manifests.py`` writes
them anew, on purpose only. The two hashes of a workload are in them: they say whether a new operator would make pods
otherwise.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from samples.scripts import ROOT
from tidemill_operator import broker_groups, clusters
from tidemill_operator.desired.jobs import run_name
from tidemill_operator.kinds import BROKER_GROUP, QUEUE_CLUSTER, SPARK_APPLICATION, SPARK_SCHEDULE
from tidemill_operator.planners import PLANNERS
from tidemill_operator.steps import Apply, Create, Manifest, Seen

FOLDER = Path(__file__).parent / "operator"
REWRITE = os.environ.get("REWRITE") == "1"
IMAGE = "registry.example.org/tidemill:0.1.0"

CLUSTERS: dict[str, dict[str, Any]] = {
    "prod": {},
    "large": {
        "image": {
            "repository": "registry.example.org/mirror/tidemill",
            "tag": "0.2.0",
            "pullSecrets": ["registry"],
        },
        "meta": {
            "replicas": 3,
            "store": {"type": "PostgreSQL", "secretRef": {"name": "meta-database", "key": "url"}},
            "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
            "scheduling": {"spread": "Required"},
            "config": [{"name": "create_subjects", "value": "false"}, {"name": "route_groups", "value": "3"}],
        },
        "brokerGroups": [{"name": "g0", "slaves": 1}, {"name": "later", "kind": "Delay"}],
        "update": {"strategy": "Supervised", "groupDelaySeconds": 60},
        "networkPolicy": {"clients": "AnyNamespace"},
    },
    "locked": {
        "security": {
            "tls": {"secretRef": {"name": "locked-tls"}, "clientCertificates": "Accepted"},
            "token": {"name": "locked-token", "key": "cluster"},
            "serviceAccounts": {"audience": "queues.example.org"},
        },
        "canary": {"enabled": True},
    },
    "watched": {
        "security": {"token": {"name": "watched-token", "key": "cluster"}},
        "canary": {
            "enabled": True,
            "intervalMilliseconds": 250,
            "token": {"name": "canary-token", "key": "token"},
            "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "192Mi"}},
            "scheduling": {"nodeSelector": {"zone": "b"}},
        },
    },
    "open": {"networkPolicy": {"mode": "None"}, "podDisruptionBudget": {"mode": "None"}},
}

GROUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "g0": ("prod", {"storage": {"size": "10Gi"}}),
    "later": ("prod", {"kind": "Delay", "storage": {"size": "5Gi"}}),
    "guarded": ("locked", {"storage": {"size": "10Gi"}}),
    "alone": ("open", {"slaves": 0, "storage": {"size": "1Gi"}}),
    "prod-fast": (
        "prod",
        {
            "groupName": "fast",
            "slaves": 2,
            "durability": "high",
            "labels": {"disk": "ssd"},
            "storage": {
                "size": "100Gi",
                "className": "fast-ssd",
                "retention": {"whenDeleted": "Retain", "whenScaled": "Delete"},
            },
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
            "scheduling": {
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [
                    {"key": "dedicated", "operator": "Equal", "value": "queues", "effect": "NoSchedule"}
                ],
                "spread": "Required",
                "priorityClassName": "queues",
            },
            "config": [{"name": "segment_bytes", "value": "268435456"}],
            "terminationGracePeriodSeconds": 120,
        },
    ),
}


SPARK = frozenset({SPARK_APPLICATION.full, SPARK_SCHEDULE.full})
SAMPLES: dict[str, dict[str, Any]] = {
    f"{one['kind'].lower()}-{one['metadata']['name']}": one
    for kind in ("archive", "replay")
    for one in yaml.safe_load_all((ROOT / f"crds/samples/{kind}.yaml").read_text())
}
"""Archives and Replays that the samples show."""


LOCKED = "locked-"
"""Before the name of a sample: the same of a cluster that is locked."""


def piped(name: str) -> list[Manifest]:
    """What runs an Archive, or a Replay whose attempt was written down."""
    where, name = ("locked" if name.startswith(LOCKED) else "prod"), name.removeprefix(LOCKED)
    found = SAMPLES[name]
    metadata = {"namespace": "shop", "uid": f"uid-{name}", "generation": 1, **found["metadata"]}
    resource = {**found, "metadata": metadata}
    noted = {"status": {"sparkApplication": f"{run_name(resource)}-1"}} if found["kind"] == "Replay" else {}
    archive = {**SAMPLES["archive-orders"], "metadata": {"name": "orders", "namespace": "shop"}}
    named = {"name": "order.created", "namespace": "shop", "labels": {"archive": "true"}}
    subject = {"kind": "Subject", "metadata": named, "spec": {}}
    seen = Seen({**resource, **noted}, cluster_of(where), (archive, subject), spark_image=IMAGE, served=SPARK)
    plan = PLANNERS[found["kind"]].decide(seen, 0)
    return [step.manifest for step in plan.steps if isinstance(step, (Apply, Create))]


def cluster_of(name: str) -> Manifest:
    return {
        **QUEUE_CLUSTER.header,
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1},
        "spec": CLUSTERS[name],
    }


def group_of(name: str) -> Manifest:
    cluster, spec = GROUPS[name]
    return {
        **BROKER_GROUP.header,
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1},
        "spec": {"clusterRef": {"name": cluster}, **spec},
    }


def made(name: str) -> list[Manifest]:
    if name in PIPED:
        return piped(name)
    if name.startswith("cluster-"):
        cluster = cluster_of(name.removeprefix("cluster-"))
        plan = clusters.plan(Seen(cluster, cluster, image=IMAGE), 0)
    else:
        group = name.removeprefix("group-")
        plan = broker_groups.plan(Seen(group_of(group), cluster_of(GROUPS[group][0]), image=IMAGE), 0)
    return [step.manifest for step in plan.steps if isinstance(step, Apply)]


PODS = [*(f"cluster-{name}" for name in CLUSTERS), *(f"group-{name}" for name in GROUPS)]
PIPED = [*SAMPLES, f"{LOCKED}archive-orders"]
EXAMPLES = [*PODS, *PIPED]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_becomes_the_manifests_that_were_reviewed(name: str) -> None:
    text = yaml.safe_dump_all([plain(one) for one in made(name)], sort_keys=False, width=120)
    file = FOLDER / f"{name}.yaml"
    if REWRITE:
        file.write_text(text)

    assert text == file.read_text()


def plain(value: Any) -> Any:
    """As YAML has it."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", PODS)
def test_pods_pass_the_restricted_standard(name: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards: what restricted asks for, and root's disk
    read-only beyond it.
    """
    for workload in made(name):
        if workload["kind"] not in {"StatefulSet", "Deployment"}:
            continue
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["automountServiceAccountToken"] is False
        # One that can be written to, and others with what Kubernetes puts there.
        kinds = [next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]]
        assert kinds.count("emptyDir") == 1
        assert set(kinds) <= {"emptyDir", "secret", "projected"}
        assert pod["volumes"][0]["emptyDir"]["sizeLimit"] == "64Mi"
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_object_has_its_owner_and_labels_and_selectors_have_no_version(name: str) -> None:
    for one in made(name):
        [owner] = one["metadata"]["ownerReferences"]
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "tidemill-operator"
        selector = one.get("spec", {}).get("selector", {})
        if isinstance(selector.get("matchLabels", selector), dict):
            assert "app.kubernetes.io/version" not in selector.get("matchLabels", selector)


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_empty_is_sent(name: str) -> None:
    """The API server keeps no empty list, and no empty block but a selector of all: it would be sent again for ever."""

    def empty(value: Any, path: str) -> list[str]:
        if isinstance(value, (dict, list, tuple)) and not value:
            return [] if path.endswith("elector") else [path]
        if isinstance(value, dict):
            return [found for key, one in value.items() for found in empty(one, f"{path}.{key}")]
        return (
            [found for one in value for found in empty(one, path)] if isinstance(value, (list, tuple)) else []
        )

    for one in made(name):
        assert empty(one, one["kind"]) == []


@pytest.mark.parametrize("name", PIPED)
def test_pods_of_spark_pass_the_restricted_standard_and_only_drivers_ask_kubernetes(name: str) -> None:
    [one] = made(name)
    spec = one["spec"].get("template", one["spec"])
    for role in ("driver", "executor"):
        pod = spec[role]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (role == "driver")
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("name", PIPED)
def test_names_leave_room_for_what_spark_puts_behind_them(name: str) -> None:
    [one] = made(name)
    assert re.fullmatch("[a-z]([-a-z0-9]{0,41}[a-z0-9])", one["metadata"]["name"])
