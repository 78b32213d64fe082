"""A real API server takes the definitions, all samples, and refuses what must be refused with what to write instead."""

from __future__ import annotations

import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from samples.manifests import Bad, Change, bad_manifests, changes, good_manifests, least, odd_manifests
from samples.stored import as_stored, not_kept
from tidemill_operator.crds.definitions import definitions
from tidemill_operator.crds.kinds import FACES
from tidemill_wire.resources import API_VERSION, parse_resource
from tidemill_wire.schema import ManifestError

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"
NAMESPACE = "crds"
ODD_MANIFESTS = 600


@pytest.fixture(scope="module")
def server(cluster: Any) -> Any:
    """An API server that knows our kinds."""
    applied = cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    assert applied.returncode == 0, applied.stderr
    names = [f"crd/{one['metadata']['name']}" for one in definitions().values()]
    waited = cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    assert waited.returncode == 0, waited.stderr
    made = cluster.kubectl("create", "namespace", NAMESPACE)
    assert made.returncode == 0 or "already exists" in made.stderr, made.stderr
    return cluster


def apply(server: Any, manifest: dict[str, Any], *options: str) -> Any:
    return server.kubectl("apply", "-n", NAMESPACE, *options, "-f", "-", stdin=json.dumps(manifest))


def place(manifest: dict[str, Any], name: str = "") -> str:
    """Where objects of that kind are made, or one of them is."""
    return f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{FACES[manifest['kind']].plural}{name and '/'}{name}"


def refusal(server: Any, method: str, path: str, manifest: dict[str, Any]) -> str:
    """What the API server says to it, asked as strictly as kubectl asks; nothing is changed."""
    with pytest.raises(AssertionError) as caught:  # cluster.api.Refused
        server.api.send(method, f"{path}?dryRun=All&fieldValidation=Strict", manifest)
    return str(caught.value).replace('\\"', '"')


def named(change: Change, letter: str) -> list[dict[str, Any]]:
    """Before and after, of an object of its own."""
    metadata = {"name": f"{letter}{zlib.crc32(change.is_a.encode()):08x}"}
    return [{**one, "metadata": metadata} for one in (change.before, change.after)]


def of(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


@pytest.mark.parametrize("name", definitions())
def test_schemas_are_structural_and_nothing_is_said_against_them(server: Any, name: str) -> None:
    full = definitions()[name]["metadata"]["name"]
    got = json.loads(server.kubectl("get", "crd", full, "-o", "json").stdout)
    conditions = {one["type"]: one for one in got["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions, conditions
    assert conditions["NamesAccepted"]["status"] == "True"


@pytest.mark.parametrize("manifest", good_manifests(), ids=of)
def test_every_sample_is_taken_and_given_back_with_its_defaults(
    server: Any, manifest: dict[str, Any]
) -> None:
    answer = apply(server, manifest, "--dry-run=server", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr
    assert json.loads(answer.stdout)["spec"] == as_stored(manifest)["spec"]


@pytest.mark.parametrize("bad", bad_manifests(), ids=lambda bad: bad.is_a)
def test_a_bad_manifest_is_refused_with_what_to_write(server: Any, bad: Bad) -> None:
    assert bad.cluster in refusal(server, "POST", place(bad.manifest), bad.manifest)


def test_the_server_takes_what_the_parser_takes_and_nothing_else(server: Any) -> None:
    """Samples with one field set to something odd: asked of both. One file, as kubectl takes its time to start."""
    drawn = random.sample(list(odd_manifests()), ODD_MANIFESTS)
    drawn = [
        one for one in drawn if one["spec"].get("clusterRef", "") is not None
    ]  # that a laptop does without
    documents = "\n---\n".join(map(json.dumps, drawn))
    answer = server.kubectl("apply", "-n", NAMESPACE, "--dry-run=server", "-f", "-", stdin=documents)
    taken = set(re.findall(r"/(odd[0-9x]+) ", answer.stdout))
    for manifest in drawn:
        assert (manifest["metadata"]["name"] in taken) == parses(manifest), manifest
    assert taken


def parses(manifest: dict[str, Any]) -> bool:
    try:
        parse_resource(manifest)
    except ManifestError:
        return False
    return True


@pytest.mark.parametrize("change", changes("bad_changes"), ids=lambda change: change.is_a)
def test_a_change_that_cannot_be_is_refused_with_what_to_do(server: Any, change: Change) -> None:
    before, after = named(change, "b")
    made = server.api.send("POST", place(before), before)["metadata"]
    assert change.says in refusal(server, "PUT", place(after, made["name"]), {**after, "metadata": made})


@pytest.mark.parametrize("change", changes("good_changes"), ids=lambda change: change.is_a)
def test_a_change_that_can_be_is_taken(server: Any, change: Change) -> None:
    before, after = named(change, "g")
    made = server.api.send("POST", place(before), before)["metadata"]
    changed = server.api.send("PUT", place(after, made["name"]), {**after, "metadata": made})
    assert changed["metadata"]["generation"] == made["generation"] + 1


@pytest.mark.parametrize("kind", FACES)
def test_a_new_object_has_a_condition_before_anybody_looked(server: Any, kind: str) -> None:
    manifest = least(kind, name="fresh")
    assert apply(server, manifest).returncode == 0
    waited = server.kubectl(
        "wait", "-n", NAMESPACE, f"--for=condition={FACES[kind].summary}=Unknown", "--timeout=30s",
        f"{FACES[kind].plural}/fresh",
    )  # fmt: skip
    assert waited.returncode == 0, waited.stderr


def test_what_the_operator_reports_is_kept_as_it_was_written(server: Any) -> None:
    """What is dropped on the way would be written again in each pass."""
    since = "2026-09-01T00:00:00Z"
    status = {
        "observedGeneration": 1,
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "", "observedGeneration": 1,
             "lastTransitionTime": since},
        ],
        "groupName": "reported", "selector": "a=b", "replicas": 2, "readyReplicas": 2, "inSync": 2,
        "master": {"broker": "reported-0", "pod": "reported-0", "address": "a:7400", "epoch": "7"},
        "brokers": [
            {"pod": "reported-0", "role": "Master", "ready": True, "inSync": True, "alive": True, "revision": "x",
             "claim": "data-reported-0", "node": "node-0", "broker": "reported-0"},
            {"pod": "reported-1", "role": "Slave", "ready": False},
        ],
        "writeState": "ReadWrite", "currentRevision": "x", "updateRevision": "y",
        "rollout": {"group": "reported", "broker": "reported-1", "stage": "WaitingForSync", "since": since},
        "storage": {"requested": "10Gi", "capacity": "10Gi"},
    }  # fmt: skip
    assert not_kept("BrokerGroup", "status", status) == []
    assert apply(server, least("BrokerGroup", name="reported")).returncode == 0
    patch = json.dumps({"status": status})
    object_name = "brokergroups/reported"
    patched = server.kubectl(
        "patch", "-n", NAMESPACE, object_name, "--subresource=status", "--type=merge", "-p", patch
    )
    assert patched.returncode == 0, patched.stderr
    got = json.loads(server.kubectl("get", "-n", NAMESPACE, object_name, "-o", "json").stdout)
    assert got["status"] == status


def test_short_names_and_the_category_are_known(server: Any) -> None:
    for short in ("tmc", "tmbg", "subj", "cgrp", "tmar", "tmrp", "tmgr", "tidemill"):
        got = server.kubectl("get", short, "-n", NAMESPACE)
        assert got.returncode == 0, got.stderr


def test_objects_can_be_selected_by_their_cluster(server: Any) -> None:
    got = server.kubectl("get", "subj", "-n", NAMESPACE, "--field-selector", "spec.clusterRef.name=nobody")
    assert got.returncode == 0, got.stderr
