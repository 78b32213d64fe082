"""Archives and Replays on nodes that run pods: kubeflow's spark-operator, by its own chart, runs what ours makes of
them, with drivers and executors that are pods, into a lake that all nodes reach.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from cluster.node import PLANE
from cluster.programs import wait_until
from cluster.queue import CHARTS, GROUP, POD, Object, Queue, condition, resource, state
from cluster.real import RealCluster
from cluster.spark_operator import REGISTRY, REPOSITORY, TAG, spark_chart, spark_kinds
from spark import programs

pytestmark = [
    pytest.mark.real_cluster,
    pytest.mark.timeout(2_700),  # images, cluster and Spark's operator may have to be built
    pytest.mark.skipif(
        "TIDEMILL_FAULTS" not in os.environ, reason="minutes of Spark: `make test-cluster` runs them"
    ),
]

NAMESPACE, OPERATOR = "lake", "spark-operator"
KEYS, OTHERS = "lake-keys", "audit"
APPLICATIONS, SCHEDULES = "sparkapplications", "scheduledsparkapplications"
SPARK_IMAGE = "localhost/tidemill-spark:0.1.0"
MESSAGES, A_SECOND = 4_000, 200
RUN_SECONDS, FLOWS_SECONDS, GONE_SECONDS = 600.0, 300, 180.0
"""A run has a JVM that submits it, one that drives it and two that do it, and a minute's pause when one was killed."""
VALUES: Object = {
    "cluster": {"meta": {"storage": {"size": "128Mi"}}},
    "brokerDefaults": {"slaves": 1, "storage": {"size": "512Mi"}},
    "brokerGroups": [{"name": "g0"}],
    "spark": {"serviceAccount": {"create": True}},
}
OF_OPERATOR: Object = {
    "image": {"registry": REGISTRY, "repository": REPOSITORY, "tag": TAG},
    "spark": {"jobNamespaces": [NAMESPACE]},
    # What asks for nothing is given next to nothing on a busy node, and this one begins a JVM for each application.
    "controller": {"resources": {"requests": {"cpu": "500m"}}},
}
SMALL: Object = {"memory": "512Mi", "memoryOverhead": "512Mi"}
SPARK: Object = {"driver": SMALL, "executor": SMALL | {"instances": 2, "cores": 1}}
ALWAYS: Object = {"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def keys(with_image: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of an S3 server on the machine, which pods reach at the address of the nodes' bridge."""
    with programs.s3(tmp_path_factory.mktemp("s3"), PLANE) as said:
        yield said


@pytest.fixture(scope="module")
def queue(with_spark: RealCluster, keys: dict[str, str]) -> Iterator[Queue]:
    """A queue, our operator and Spark's, as people would install them; nothing is done to either's rights."""
    made = Queue(with_spark, NAMESPACE)
    with_spark.ask("create", "namespace", NAMESPACE)
    words = ("--namespace", OPERATOR, "--create-namespace", "--values=-")
    done = with_spark.helm("install", OPERATOR, str(spark_chart()), *words, stdin=json.dumps(OF_OPERATOR))
    assert done.returncode == 0, done.stderr
    made.helm("install", "tidemill-operator", CHARTS / "tidemill-operator", "--wait")
    made.helm("install", "queue", CHARTS / "tidemill", values=VALUES)
    for kind in ("queuecluster", "brokergroup"):
        made.ready(kind, "--all")
    with_spark.ask(
        "wait", "deployments", "--all", "-n", OPERATOR, "--for=condition=Available", "--timeout=100s"
    )
    settings = {name: value for name, value in keys.items() if name.startswith("AWS_")}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": KEYS}, "stringData": settings}
    made.apply(secret)
    yield made
    made.uninstall()
    done = with_spark.helm("uninstall", OPERATOR, "--namespace", OPERATOR, "--wait")
    assert done.returncode == 0, done.stderr
    with_spark.ask("delete", "--wait=false", "-f", str(spark_kinds()))
    with_spark.ask("delete", "namespace", NAMESPACE, OPERATOR, "--timeout=100s")


def test_what_is_archived_is_sent_again_to_one_group_alone(queue: Queue, keys: dict[str, str]) -> None:
    with told(queue):
        exchanged(queue, "orders")
        archive(queue, "orders", keys)
        found = archived(queue, "orders")
        assert found["status"]["archived"]["messages"] == str(MESSAGES + 1), "the last one is no number"
        run = queue.get(APPLICATIONS, found["status"]["lastRunName"])
        assert len(run["status"]["executorState"]) == 2
        assert is_equal(queue, "orders", keys)

        replay(queue, "orders", rate=2_000)
        assert_replayed(queue, "orders")
        assert queue.said(queue.begin("consume", "orders", 0)) | {"seconds": 0} == all_of_them()
        only_what_is_new(queue, "orders")
        gone(queue, "orders")


def test_drivers_that_are_killed_cost_nothing(queue: Queue, keys: dict[str, str]) -> None:
    """Of an Archive, whose run Spark's operator tries again, and of a Replay, which ours does."""
    with told(queue):
        exchanged(queue, "parcels")
        archive(queue, "parcels", keys)
        wait_until("a run has begun", lambda: "Running" in states(queue, "archives/parcels"), RUN_SECONDS)
        killed = driver(queue, queue.get("archive", "parcels")["status"]["lastRunName"])
        found = archived(queue, "parcels")
        run = queue.get(APPLICATIONS, found["status"]["lastRunName"])
        assert run["status"]["driverInfo"]["podName"] == killed
        assert run["status"]["executionAttempts"] == 2
        assert states(queue, "archives/parcels") == ["Running", "Succeeded"], (
            "the first had no time to say more"
        )
        assert is_equal(queue, "parcels", keys)

        replay(queue, "parcels", rate=A_SECOND)
        wait_until(
            "it is under way", lambda: attempt(queue, "parcels").get("state") == "RUNNING", RUN_SECONDS
        )
        consumer = queue.begin("consume", "parcels", 0)
        ready = ("--for=condition=Ready", f"--timeout={FLOWS_SECONDS}s")
        queue.ask("wait", f"pod/{consumer}", *ready, seconds=FLOWS_SECONDS + 20)
        driver(queue, queue.get("replay", "parcels")["status"]["sparkApplication"])
        assert_replayed(queue, "parcels")
        assert queue.get("replay", "parcels")["status"]["attempts"] == 2
        assert queue.said(consumer) | {"seconds": 0} == all_of_them()
        only_what_is_new(queue, "parcels")
        gone(queue, "parcels")


# -- what is done ------------------------------------------------------------------------------------------------------


def exchanged(queue: Queue, subject: str) -> None:
    """Messages, and two groups that have had them all."""
    queue.declare(subject, OTHERS)
    consumers = [queue.begin("consume", subject, 0, group=group) for group in (GROUP, OTHERS)]
    producer = queue.begin("produce", subject, MESSAGES)
    assert queue.said(producer)["sent"] == MESSAGES
    for pod in consumers:
        assert queue.said(pod)["seen"] == MESSAGES
    queue.ask("delete", "pod", producer, *consumers)


def archive(queue: Queue, name: str, keys: dict[str, str]) -> None:
    """Due at the next minute, once: no other run is to come between."""
    spec: Object = {
        "source": {"subjects": [{"name": name}]},
        "destination": {"uri": f"{keys['uri']}/{name}", "credentials": {"name": KEYS}},
        "schedule": "* * * * *",
        "window": {"safetyLagSeconds": 0},
        "spark": SPARK,
    }
    queue.apply(resource("Archive", name, spec))
    queue.ready("archive", name)
    assert "<invalid>" not in queue.ask("get", "archives"), (
        "of times to come kubectl can say how long they are past"
    )
    wait_until("a run is due", lambda: "lastRunName" in queue.get("archive", name)["status"], RUN_SECONDS)
    queue.apply(resource("Archive", name, spec | {"state": "Suspended"}))


def replay(queue: Queue, name: str, rate: int) -> None:
    spec = {
        "source": ALWAYS | {"archiveRef": {"name": name}},
        "target": {"subject": name, "consumerGroup": GROUP},
        "rate": {"messagesPerSecond": rate},
        "spark": SPARK,
    }
    queue.apply(resource("Replay", name, spec))


def driver(queue: Queue, application: str) -> str:
    """The driver's pod, which `kill -9` ends."""
    pod = str(queue.get(APPLICATIONS, application)["status"]["driverInfo"]["podName"])
    queue.cluster.kill(queue.namespace, pod)
    return pod


def only_what_is_new(queue: Queue, subject: str) -> None:
    """The other group is given what is sent now, and nothing that was replayed before it."""
    assert queue.said(queue.begin("produce", subject, 0))["sent"] == 0
    found = queue.said(queue.begin("consume", subject, 0, group=OTHERS))
    assert found | {"seconds": 0} == {"wanted": 0, "seen": 0, "again": 0, "seconds": 0}


def gone(queue: Queue, name: str) -> None:
    """Both objects, and with them all that ran for them; the lake stays."""
    queue.ask("delete", "replay", name, "--timeout=100s")
    queue.ask("delete", "archive", name, "--timeout=100s")
    pods = (
        "pods",
        "-l",
        "app.kubernetes.io/component in (archive-driver,archive-executor,replay-driver,replay-executor)",
    )

    def is_gone() -> bool:
        return not queue.items(f"{APPLICATIONS},{SCHEDULES}") and not queue.items(*pods)

    wait_until("nothing of Spark is left", is_gone, GONE_SECONDS)


# -- what is seen ------------------------------------------------------------------------------------------------------


def archived(queue: Queue, name: str) -> Object:
    """The Archive, when its run went well."""

    def went_well() -> bool:
        nonlocal found
        found = queue.get("archive", name)
        return state(found, "LastRunSucceeded") == "True"

    def went_wrong() -> None:
        last = condition(found, "LastRunSucceeded")
        assert last.get("status") != "False", last

    found: Object = {}
    wait_until(f"the run of {name} goes well", went_well, RUN_SECONDS, went_wrong)
    marks = found["status"]["watermarks"]
    assert {mark["subject"] for mark in marks} == {name}
    assert sum(int(mark["sequence"]) for mark in marks) == MESSAGES + 1
    assert condition(found, "Scheduled")["reason"] == "Suspended"
    assert found["status"]["lastRunState"] == "Succeeded"
    return found


def assert_replayed(queue: Queue, name: str) -> None:
    def failed() -> None:
        found = queue.get("replay", name)
        assert state(found, "Failed") != "True", condition(found, "Failed")

    def is_complete() -> bool:
        return state(queue.get("replay", name), "Complete") == "True"

    wait_until(f"the replay of {name} is complete", is_complete, RUN_SECONDS, failed)
    found = queue.get("replay", name)
    assert found["status"]["counts"]["sent"] == str(MESSAGES + 1)


def all_of_them() -> Object:
    """What a consumer says that had every message once."""
    return {"wanted": MESSAGES, "seen": MESSAGES, "again": 0, "seconds": 0}


def attempt(queue: Queue, replay: str) -> Object:
    """The state of what runs a Replay."""
    name = queue.get("replay", replay).get("status", {}).get("sparkApplication", "")
    found = [one for one in queue.items(APPLICATIONS) if one["metadata"]["name"] == name]
    return dict(found[0].get("status", {}).get("applicationState", {})) if found else {}


def states(queue: Queue, path: str) -> list[str]:
    """Of the runs that meta knows, the earliest first."""
    address = queue.get("pod", "queue-meta-0")["status"]["podIP"]
    with urlopen(f"http://{address}:7401/v1/{path}", timeout=5) as answer:
        return [str(run["state"]) for run in json.load(answer)["runs"]]


def is_equal(queue: Queue, subject: str, keys: dict[str, str]) -> bool:
    """Whether the lake has what brokers have, by the word of a pod that compares them."""
    name = f"reconcile-{subject}"
    words = ["tidemill", "archive", "reconcile", f"{keys['uri']}/{subject}", "--server", "queue-meta:7401"]
    container = {
        "name": "reconcile",
        "image": SPARK_IMAGE,
        "args": [*words, "--subject", subject, "--output", "json", "--workers", "1"],
        "envFrom": [{"secretRef": {"name": KEYS}}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # the pod's own
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    queue.apply(pod | {"spec": POD | {"containers": [container]}})
    return bool(queue.said(name)["equal"])


@contextmanager
def told(queue: Queue) -> Iterator[None]:
    """How long it took; and when it fails, what everybody says."""
    began = time.monotonic()
    try:
        yield
    except BaseException:
        print(queue.cluster.kubectl("get", "all,archives,replays,events", "-n", queue.namespace).stdout)
        for one in queue.items("pods", "-l", "spark-role"):
            name = one["metadata"]["name"]
            print(name, queue.cluster.kubectl("logs", "--tail=60", "-n", queue.namespace, name).stdout)
        words = ("logs", "--tail=100", "-n", OPERATOR, "-l", "app.kubernetes.io/component=controller")
        print(queue.cluster.kubectl(*words).stdout)
        raise
    print(f"from the first message to the last: {time.monotonic() - began:.0f} s")
