"""Archives and Replays on a real API server that has the kinds of kubeflow's spark-operator, and no such operator: what
it would say of its objects, the tests say.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.build import programs
from cluster.kwok import KwokCluster
from cluster.spark_operator import spark_chart, spark_kinds
from e2e.metas import Meta
from e2e.operators import Operator, Proxy, wait_until
from e2e.shops import Shop
from samples.pipelines import ARCHIVE, IMAGE, REPLAY
from samples.scripts import ROOT
from spark.conftest import install_java
from tidemill_operator.kinds import OURS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GOLDEN = sorted((ROOT / "tests/golden/operator").glob("archive-*.yaml")) + sorted(
    (ROOT / "tests/golden/operator").glob("replay-*.yaml")
)
APPLICATIONS, SCHEDULES = (
    "sparkapplications.sparkoperator.k8s.io",
    "scheduledsparkapplications.sparkoperator.k8s.io",
)
SETTINGS = {"TIDEMILL_OPERATOR_SPARK_IMAGE": IMAGE}
PASSES = 'tidemill_operator_reconcile_total{kind="Archive",result="done"}'


def install(cluster: KwokCluster) -> None:
    """As the chart of Spark's operator does."""
    done = cluster.kubectl("apply", "--server-side", "-f", str(spark_kinds()))
    assert done.returncode == 0, done.stderr
    for kind in (APPLICATIONS, SCHEDULES):
        # `kubectl wait` ends with an error as long as nobody has said anything of a definition.
        wait_until(f"{kind} are known", lambda kind=kind: cluster.kubectl("get", kind, "-A").returncode == 0)


@pytest.fixture(scope="module")
def with_spark(cluster: KwokCluster) -> KwokCluster:
    install(cluster)
    return cluster


@pytest.fixture
def working(shop: Shop, with_spark: KwokCluster, tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path / "operator", shop.cluster.kubeconfig, [shop.namespace], SETTINGS)
    made.start().wait_working()
    shop.apply("Subject", "orders", {"subjectName": "order.created"})
    yield made
    made.close()


def listed(shop: Shop, kind: str) -> list[dict[str, Any]]:
    return json.loads(shop.ask("get", kind, "-o", "json"))["items"]  # type: ignore[no-any-return]


def only(shop: Shop, kind: str) -> dict[str, Any]:
    """The one that comes."""
    wait_until(f"there is one of {kind}", lambda: len(listed(shop, kind)) == 1)
    [found] = listed(shop, kind)
    return found


def say(shop: Shop, kind: str, name: str, status: dict[str, Any]) -> None:
    """As Spark's operator does."""
    said = json.dumps({"status": status})
    shop.ask("patch", kind, name, "--subresource=status", "--type=merge", "-p", said)


def turn(shop: Shop, name: str, state: str, **more: str) -> None:
    said = {"executorState": {}, "driverInfo": {}, "lastSubmissionAttemptTime": None, "terminationTime": None}
    say(shop, APPLICATIONS, name, {**said, **more, "applicationState": {"state": state}})


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_api_server_takes_what_the_operator_makes(
    with_spark: KwokCluster, namespace: str, path: Path
) -> None:
    with_spark.ask("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    [one] = yaml.safe_load_all(path.read_text())
    one["metadata"]["namespace"] = namespace
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    said = with_spark.kubectl(*words, stdin=json.dumps(one))
    assert (said.returncode, "warning" in said.stderr.lower()) == (0, False), said.stderr

    spec = one["spec"].get("template", one["spec"])
    for role in ("driver", "executor"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role}, **spec[role]["template"]}
        pod["spec"]["containers"][0]["image"] = spec["image"]
        said = with_spark.kubectl(
            "create",
            "--dry-run=server",
            "--validate=strict",
            "-n",
            namespace,
            "-f",
            "-",
            stdin=json.dumps(pod),
        )
        assert said.returncode == 0, said.stderr


@pytest.fixture
def submitter(with_spark: KwokCluster, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of Spark's operator, with the rights that its own chart gives it."""
    sets = (f"spark.jobNamespaces={{{namespace}}}", "webhook.enable=false")
    words = ("--namespace", namespace, "--skip-crds", *(word for one in sets for word in ("--set", one)))
    done = with_spark.helm("install", "spark-operator", str(spark_chart()), *words)
    assert done.returncode == 0, done.stderr
    token = with_spark.ask("create", "token", "spark-operator-controller", "-n", namespace).strip()
    config = json.loads(Path(with_spark.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    yield path
    with_spark.helm("uninstall", "spark-operator", "--namespace", namespace)


def test_spark_submits_it_with_the_rights_that_the_chart_of_its_operator_gives(
    with_spark: KwokCluster, namespace: str, submitter: Path
) -> None:
    """As that does it: `spark-submit`, told what the application says. The driver's pod is played."""
    install_java()
    home = Path(str(importlib.import_module("pyspark").__file__)).parent
    [made] = yaml.safe_load_all((ROOT / "tests/golden/operator/replay-orders-again.yaml").read_text())
    server = json.loads(submitter.read_text())["clusters"][0]["cluster"]["server"]
    conf = {
        **made["spec"]["sparkConf"],
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": made["spec"]["image"],
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    words = [str(home / "bin/spark-submit"), "--master", f"k8s://{server}", "--deploy-mode", "cluster"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    settings = {**os.environ, "KUBECONFIG": str(submitter), "SPARK_HOME": str(home)}
    command = [*words, made["spec"]["mainApplicationFile"]]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    [pod] = with_spark.json("get", "pods", "-n", namespace, "-l", "spark-role=driver")["items"]
    assert pod["spec"]["containers"][0]["image"] == made["spec"]["image"]


def test_an_archive_is_scheduled_changed_and_goes(shop: Shop, meta: Meta, working: Operator) -> None:
    shop.apply("Archive", "hourly", ARCHIVE)
    schedule = only(shop, SCHEDULES)
    name = schedule["metadata"]["name"]
    assert schedule["spec"]["template"]["image"] == IMAGE
    shop.wait("archive", "hourly", "Unknown", "Pending", "Scheduled")
    say(shop, SCHEDULES, name, {"scheduleState": "Scheduled", "nextRun": "2030-01-01T00:15:00Z"})
    shop.wait("archive", "hourly", "True", "Reconciled", "Scheduled")
    shop.wait("archive", "hourly", "True", "Reconciled")
    assert meta.get("/v1/archives/hourly")["subjects"] == ["order.created"], "meta keeps for it from now on"
    told = {"state": "Succeeded", "watermarks": {"g0": {"order.created": 70}}, "counts": {"messages": 70}}
    assert meta.ask("PUT", "/v1/archives/hourly/runs/r1", told)[0] == 200
    wait_until("it says how far it is", lambda: status(shop, "hourly").get("archived") == {"messages": "70"})
    mark = {"subject": "order.created", "brokerGroup": "g0", "sequence": "70"}
    assert status(shop, "hourly")["watermarks"] == [mark]
    shop.apply("Archive", "hourly", {**ARCHIVE, "schedule": "30 2 * * mon-fri"})
    wait_until("another one", lambda: only(shop, SCHEDULES)["metadata"]["name"] != name)
    assert only(shop, SCHEDULES)["spec"]["schedule"] == "30 2 * * 1,2,3,4,5"
    shop.ask("delete", "archive", "hourly")
    wait_until("nothing is left", lambda: listed(shop, SCHEDULES) == [])
    assert meta.get("/v1/archives/hourly")["state"] == "Ended"


def test_a_replay_is_run_once_whoever_ends_in_between(shop: Shop, meta: Meta, working: Operator) -> None:
    shop.apply("Archive", "hourly", {**ARCHIVE, "state": "Suspended"})
    shop.apply("Replay", "again", REPLAY)
    made = only(shop, APPLICATIONS)
    name = made["metadata"]["name"]
    turn(shop, name, "RUNNING")
    working.kill()
    working.start().wait_working()
    shop.wait("replay", "again", "Unknown", "Progressing", "Complete")
    shop.apply("Replay", "again", {**REPLAY, "state": "Suspended"})
    wait_until("it is told to wait", lambda: only(shop, APPLICATIONS)["spec"].get("suspend") is True)
    shop.apply("Replay", "again", {**REPLAY, "state": "Active"})
    wait_until("it is told to go on", lambda: only(shop, APPLICATIONS)["spec"].get("suspend") is False)
    turn(shop, name, "COMPLETED", terminationTime="2036-11-01T00:00:00Z")
    shop.wait("replay", "again", "True", "RunSucceeded", "Complete")
    found = only(shop, APPLICATIONS)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert {**found["spec"], "suspend": None} == {**made["spec"], "suspend": None}
    assert (shop.get("replay", "again") or {})["status"]["attempts"] == 1
    shop.ask("delete", APPLICATIONS, name)
    shop.annotate("replay", "again", "look=again")
    shop.apply("Replay", "again", {**REPLAY, "state": "Suspended"})
    shop.wait("replay", "again", "True", "RunSucceeded", "Complete")
    assert listed(shop, APPLICATIONS) == []


def test_nothing_is_written_while_nothing_happens(
    shop: Shop, meta: Meta, with_spark: KwokCluster, tmp_path: Path
) -> None:
    with Proxy(shop.cluster.kubeconfig, tmp_path) as proxy:
        operator = Operator(tmp_path / "operator", proxy.kubeconfig, [shop.namespace], SETTINGS)
        operator.start().wait_working()
        try:
            shop.apply("Subject", "orders", {"subjectName": "order.created"})
            shop.apply("Archive", "hourly", ARCHIVE)
            say(shop, SCHEDULES, only(shop, SCHEDULES)["metadata"]["name"], {"scheduleState": "Scheduled"})
            shop.apply("Replay", "again", REPLAY)
            turn(shop, only(shop, APPLICATIONS)["metadata"]["name"], "RUNNING")
            shop.wait("archive", "hourly", "True", "Reconciled", "Scheduled")
            wait_until("it runs", lambda: "runs" in message(shop, "replay", "again", "Complete"))
            wait_until("events are told", lambda: ("again", "AttemptStarted") in shop.events())
            passes, before = operator.number(PASSES), proxy.writes()
            wait_until("it was looked at again", lambda: operator.number(PASSES) >= passes + 3)
            assert proxy.writes() == before
        finally:
            operator.close()


def status(shop: Shop, archive: str) -> dict[str, Any]:
    return dict((shop.get("archive", archive) or {}).get("status", {}))


def message(shop: Shop, kind: str, name: str, condition: str) -> str:
    rows = (shop.get(kind, name) or {}).get("status", {}).get("conditions", ())
    return next((str(one["message"]) for one in rows if one["type"] == condition), "")


def test_who_installs_sparks_operator_later_need_not_start_this_one_again(meta: Meta, tmp_path: Path) -> None:
    """A Kubernetes of its own: in that of the others the kinds may be there."""
    cluster = KwokCluster(tmp_path / "kwok", programs(), 1).start()
    try:
        assert cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds")).returncode == 0
        cluster.ask("wait", "--for=condition=Established", *(f"crd/{one.plural}.{one.group}" for one in OURS))
        shop = Shop(cluster, "default", meta.server)
        operator = Operator(tmp_path / "operator", cluster.kubeconfig, ["default"], SETTINGS)
        operator.start().wait_working()
        try:
            shop.apply("Subject", "orders")
            shop.apply("Archive", "hourly", ARCHIVE)
            shop.apply("Replay", "again", REPLAY)
            shop.wait("archive", "hourly", "False", "SparkOperatorMissing", "Scheduled")
            shop.wait("archive", "hourly", "False", "SparkOperatorMissing")
            shop.wait("replay", "again", "False", "SparkOperatorMissing", "Complete")
            install(cluster)
            say(shop, SCHEDULES, only(shop, SCHEDULES)["metadata"]["name"], {"scheduleState": "Scheduled"})
            shop.wait("archive", "hourly", "True", "Reconciled")
            turn(shop, only(shop, APPLICATIONS)["metadata"]["name"], "COMPLETED")
            shop.wait("replay", "again", "True", "RunSucceeded", "Complete")
        finally:
            operator.close()
    finally:
        cluster.stop()
