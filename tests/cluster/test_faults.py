"""What may happen to a queue on Kubernetes, one after the other, under 500 messages a second: nothing is lost.

Two groups lie on two nodes each and share one, with meta, so that a node may go and leave one of the groups whole.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.programs import wait_until
from cluster.queue import (
    BEFORE,
    CHARTS,
    IMAGE,
    OPERATORS,
    TURN_SECONDS,
    VERSION,
    Flow,
    Object,
    Queue,
    condition,
    state,
)
from cluster.real import RealCluster
from cluster.witness import leader, node_of_operator, operator, row, seconds_of_processor, writes

pytestmark = [
    pytest.mark.real_cluster,
    pytest.mark.timeout(2_700),  # image and cluster may have to be built
    pytest.mark.skipif(
        "TIDEMILL_FAULTS" not in os.environ, reason="twelve minutes: `make test-cluster` runs them"
    ),
]

A_SECOND = 500
STALL_SECONDS = 3.0
LED_SECONDS = 10.0
"""After which another broker leads when a master is gone without a word."""
WELL_SECONDS = 120.0
SETTLED_SECONDS = 11.0
"""For so long a broker is watched before anything else of its group may go."""
KILL_SECONDS, FORCED_KILL = (3.0, 7.0), 3
LEASE_SECONDS = 20.0
"""An operator whose pod vanished is succeeded when its lease has run out, which is after 15."""
IDLE_SECONDS, LOOK_SECONDS, CALM_SECONDS, IDLE_CORE = 60.0, 10.0, 150.0, 0.02
GROUPS = ("g0", "g1")
HOLDS = "tests.tidemill.dev/holds-"
"""Labels of nodes: which of them a group may lie on."""


@pytest.fixture(scope="module")
def queue(with_image: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """Of the version before, with two groups of two, and a delay group."""
    cluster, made = with_image, Queue(with_image, "faults")
    first, shared, last = cluster.nodes
    for node, held in ((first, ("g0",)), (shared, ("g0", "g1", "meta")), (last, ("g1",))):
        cluster.ask("label", "node", node, *(f"{HOLDS}{name}=yes" for name in held))
    charts = packages(cluster, tmp_path_factory.mktemp("charts"))
    made.helm("install", "tidemill-operator", charts["tidemill-operator"], "--wait")
    made.helm("install", "queue", charts["tidemill"], values=values(BEFORE))
    for kind in ("queuecluster", "brokergroup"):
        made.ready(kind, "--all")
    yield made
    goes_without_a_trace(made)
    for node in cluster.nodes:
        cluster.ask("label", "node", node, *(f"{HOLDS}{name}-" for name in (*GROUPS, "meta")))


@pytest.fixture(autouse=True)
def patience() -> None:
    """What takes a minute or two here is no hang."""


def packages(cluster: RealCluster, folder: Path) -> dict[str, Path]:
    """Both charts as they would be of the version before."""
    for name in ("tidemill", "tidemill-operator"):
        words = (f"--version={BEFORE}", f"--app-version={BEFORE}", f"--destination={folder}")
        done = cluster.helm("package", str(CHARTS / name), *words)
        assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}-{BEFORE}.tgz" for name in ("tidemill", "tidemill-operator")}


def values(version: str, size: str = "512Mi") -> Object:
    def on(name: str) -> Object:
        return {"scheduling": {"nodeSelector": {f"{HOLDS}{name}": "yes"}}}

    return {
        "cluster": {
            "image": {"repository": IMAGE, "tag": version},
            "meta": {"storage": {"size": "128Mi"}, **on("meta")},
        },
        "brokerDefaults": {"slaves": 1, "storage": {"size": size}},
        "brokerGroups": [
            *({"name": name, **on(name)} for name in GROUPS),
            {"name": "later", "kind": "Delay", "slaves": 0},
        ],
    }


def goes_without_a_trace(queue: Queue) -> None:
    """After all of it another operator finds nothing to write; and nothing holds what is deleted."""
    wait_until("all is calm", queue.is_calm, WELL_SECONDS)
    stays = queue.versions()
    queue.cluster.ask("delete", "pod", "-n", OPERATORS, "--all")
    queue.declare("afterwards")
    now = queue.versions()
    assert {name: now[name] for name in stays} == stays
    queue.uninstall()
    left = queue.cluster.json("get", "tidemill", "-n", queue.namespace)["items"]
    assert not [one["metadata"]["name"] for one in left if "deletionTimestamp" in one["metadata"]]
    queue.cluster.ask("delete", "namespace", queue.namespace, "--timeout=100s")


# -- the tests -------------------------------------------------------------------------------------------------------


def test_charts_are_upgraded_and_all_is_rolled_while_the_operator_is_killed_every_five_seconds(
    queue: Queue,
) -> None:
    """The operator first, which replaces nothing by itself; then the queue, whose image is another one."""
    before = queue.brokers()
    with queue.traffic("upgraded", A_SECOND) as flow:
        began = time.monotonic()
        queue.helm("upgrade", "tidemill-operator", CHARTS / "tidemill-operator", "--wait")
        assert queue.brokers() == before
        queue.helm("upgrade", "queue", CHARTS / "tidemill", values=values(VERSION, size(queue)))
        kills = killed_until(queue, lambda: queue.is_rolled(before))
        took = time.monotonic() - began
    holds(
        f"charts upgraded, {len(before)} brokers and meta rolled in {took:.0f} s, operator killed {kills} times",
        flow,
    )
    images = {pod["spec"]["containers"][0]["image"] for pod in queue.items("pods", "-l", OURS)}
    assert images == {f"{IMAGE}:{VERSION}"}


def killed_until(queue: Queue, done: Callable[[], bool]) -> int:
    """How often: by `kill -9`, at random; and once its pod is deleted by force, and its lease has to run out."""
    chance, kills = random.Random(7), 0
    began = time.monotonic()
    next_kill = began + chance.uniform(*KILL_SECONDS)
    while not done():
        assert time.monotonic() - began < TURN_SECONDS, f"not rolled: {queue.brokers()}"
        if time.monotonic() < next_kill:
            continue
        kills += 1
        pause = chance.uniform(*KILL_SECONDS)
        if kills == FORCED_KILL:
            queue.cluster.ask("delete", "pod", "-n", OPERATORS, "--all", "--grace-period=0", "--force")
            pause += LEASE_SECONDS
        elif name := operator(queue):
            queue.cluster.kill(OPERATORS, name)
        next_kill = time.monotonic() + pause
    return kills


@pytest.mark.parametrize("role", ["master", "slave"])
@pytest.mark.parametrize("words", [(), ("--grace-period=0", "--force")], ids=["asked", "forced"])
def test_a_broker_whose_pod_is_deleted_is_there_again(
    queue: Queue, role: str, words: tuple[str, ...]
) -> None:
    settled(queue)
    pod = queue.led("queue-g0")["pod"]
    if role == "slave":
        (pod,) = {"queue-g0-0", "queue-g0-1"} - {pod}
    before = queue.brokers()[pod]
    with queue.traffic(f"{role}-{'forced' if words else 'asked'}", A_SECOND) as flow:
        began = time.monotonic()
        queue.ask("delete", "pod", pod, *words, "--wait=false")
        wait_until("another pod is there", lambda: queue.brokers().get(pod, before) != before, WELL_SECONDS)
        wait_until("both are in sync", lambda: in_sync(queue), WELL_SECONDS)
        took = time.monotonic() - began
    holds(f"pod of a {role} deleted {' '.join(words)}: in sync again after {took:.0f} s", flow)


def test_a_node_with_a_master_is_drained(queue: Queue) -> None:
    """It hands over before it goes; its volume stays with the node, so its pod waits for that."""
    settled(queue)
    first, _, aside = queue.cluster.nodes
    lead_on(queue, "g0", first)
    master = queue.led("queue-g0")
    with queue.traffic("drained", A_SECOND, aside) as flow:
        began = time.monotonic()
        words = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s")
        queue.cluster.ask("drain", first, *words, seconds=120.0)
        drained = time.monotonic() - began
        waiting = {
            pod["metadata"]["name"] for pod in queue.items("pods", "--field-selector=status.phase=Pending")
        }
        now = leader(queue, "g0")
        queue.cluster.ask("uncordon", first)
        wait_until("all are in sync", lambda: in_sync(queue), WELL_SECONDS)
        took = time.monotonic() - began
    holds(
        f"node drained in {drained:.0f} s, {took:.0f} s until all are in sync; {sorted(waiting)} waited", flow
    )
    assert master["pod"] in waiting
    assert now not in {"", master["broker"]}


def test_a_slave_leads_when_the_power_of_its_masters_node_is_cut(queue: Queue) -> None:
    """The other group goes on, and sends go there; what was under way to the master waits for its successor."""
    settled(queue)
    first, shared, last = queue.cluster.nodes
    away = node_of_operator(queue)
    group, node, aside = ("g0", first, last) if away != first else ("g1", last, first)
    lead_on(queue, group, node)
    lead_on(queue, other(group), shared)
    master = queue.led(f"queue-{group}")["broker"]
    with queue.traffic("cut", A_SECOND, aside) as flow:
        began = time.monotonic()
        queue.cluster.power_cut(node)
        wait_until("the slave leads", lambda: leader(queue, group) not in {"", master}, WELL_SECONDS)
        led = time.monotonic() - began
        wait_until("the node is missed", lambda: not is_ready(queue, node), WELL_SECONDS)
        queue.cluster.power_on(node)
        queue.cluster.wait_ready(node)
        back = time.monotonic()
        wait_until("all are in sync", lambda: in_sync(queue), WELL_SECONDS)
        took = time.monotonic() - back
    holds(f"power of {node} cut: another led after {led:.1f} s; in sync {took:.0f} s after it was back", flow)
    assert led < LED_SECONDS


def test_volumes_grow_while_brokers_run(queue: Queue) -> None:
    """And what cannot grow says so, and nothing else happens to it."""
    pods = queue.brokers()
    with queue.traffic("grown", A_SECOND) as flow:
        began = time.monotonic()
        queue.helm("upgrade", "queue", CHARTS / "tidemill", values=values(version(queue), "640Mi"))
        wait_until("all volumes have the size", lambda: capacities(queue) == {"640Mi"}, WELL_SECONDS)
        took = time.monotonic() - began
    holds(f"volumes grown in {took:.1f} s", flow)
    assert queue.brokers() == pods


def test_a_group_is_added_takes_messages_and_is_drained_away(queue: Queue) -> None:
    now = values(version(queue), size(queue))
    more = {**now, "brokerGroups": [*now["brokerGroups"], {"name": "g2", "slaves": 0}]}
    with queue.traffic("before", A_SECOND // 2) as former:
        queue.helm("upgrade", "queue", CHARTS / "tidemill", values=more)
        queue.ready("brokergroup", "queue-g2")
        taken = placed(queue, "before", 3)
        began = time.monotonic()
        queue.helm("upgrade", "queue", CHARTS / "tidemill", values=now)
        queue.ask("wait", "brokergroup/queue-g2", "--for=delete", "--timeout=180s", seconds=200.0)
        took = time.monotonic() - began
    holds(f"a group added, {taken}, drained away in {took:.0f} s", former)
    assert "g2" in taken
    claims = {one["metadata"]["name"] for one in queue.items("persistentvolumeclaims")}
    assert "data-queue-g2-0" in claims


def test_an_idle_operator_writes_nothing_and_takes_next_to_nothing(queue: Queue) -> None:
    """A minute without a write comes soon after the last change: a group's lag is told up to a minute late."""
    settled(queue)
    name = operator(queue)
    stays, wrote, used, began = (
        queue.versions(),
        writes(queue),
        seconds_of_processor(queue, name),
        time.monotonic(),
    )
    deadline = began + CALM_SECONDS
    while (took := time.monotonic() - began) < IDLE_SECONDS:
        look = time.monotonic() + LOOK_SECONDS  # to be asked takes its time, too
        wait_until("some seconds have passed", lambda until=look: time.monotonic() > until, WELL_SECONDS)
        if (now := writes(queue)) != wrote:
            wrote, used, began = now, seconds_of_processor(queue, name), time.monotonic()
            assert began < deadline, f"it still writes: {now:.0f} so far"
    core = (seconds_of_processor(queue, name) - used) / took
    print(f"an idle operator: no write in {took:.0f} s, {core:.1%} of a core")
    assert queue.versions() == stays
    assert core < IDLE_CORE


# -- what they look at -----------------------------------------------------------------------------------------------

OURS = "app.kubernetes.io/instance=queue,app.kubernetes.io/name=tidemill"


def holds(what: str, flow: Flow) -> None:
    """What is promised whatever happens, and what was seen."""
    print(f"{what}: {flow}")
    assert flow.is_whole
    assert flow.stall_seconds < STALL_SECONDS
    assert flow.wait_seconds < LED_SECONDS


def settled(queue: Queue) -> None:
    """Until all is well, and has been for as long as it takes to be sure."""

    def is_settled() -> bool:
        pods = queue.items("pods", "-l", OURS)
        since = [datetime.fromisoformat(condition(pod, "Ready")["lastTransitionTime"]) for pod in pods]
        calm = (datetime.now(UTC) - max(since)).total_seconds() > SETTLED_SECONDS
        return calm and in_sync(queue) and queue.is_calm()

    wait_until("all is well", is_settled, WELL_SECONDS)


def in_sync(queue: Queue) -> bool:
    """Every broker of both groups, by the operator's word and by meta's."""
    for name in GROUPS:
        status = queue.get("brokergroup", f"queue-{name}")["status"]
        if (status.get("inSync"), status.get("readyReplicas")) != (2, 2):
            return False
        if not all(broker["alive"] and broker["in_sync"] for broker in row(queue, name)["brokers"]):
            return False
    return True


def lead_on(queue: Queue, group: str, node: str) -> None:
    """Have the broker on that node lead: the other one, if it is master, is asked to go, and hands over."""
    led = queue.led(f"queue-{group}")
    pods = {f"queue-{group}-{number}" for number in range(2)}
    assert len({queue.node_of(pod) for pod in pods}) == 2, "both brokers of a group are on one node"
    if queue.node_of(led["pod"]) == node:
        return
    queue.ask("delete", "pod", led["pod"])
    wait_until("another one leads", lambda: leader(queue, group) not in {"", led["broker"]}, WELL_SECONDS)
    settled(queue)
    assert queue.node_of(queue.led(f"queue-{group}")["pod"]) == node


def other(group: str) -> str:
    (found,) = set(GROUPS) - {group}
    return found


def is_ready(queue: Queue, node: str) -> bool:
    found: Object = queue.cluster.json("get", "node", node)
    return state(found, "Ready") == "True"


def version(queue: Queue) -> str:
    """That the queue has now: tests come in any order."""
    return str(queue.get("queuecluster", "queue")["spec"]["image"]["tag"])


def size(queue: Queue) -> str:
    """Of a broker's volume: the same."""
    return str(queue.get("brokergroup", "queue-g0")["spec"]["storage"]["size"])


def capacities(queue: Queue) -> set[str]:
    """Of the volumes of all groups that are there; those of a group that has gone stay as they are."""
    names = ",".join(one["metadata"]["name"] for one in queue.items("brokergroups"))
    claims = queue.items("persistentvolumeclaims", "-l", f"tidemill.dev/broker-group in ({names})")
    return {one["status"]["capacity"]["storage"] for one in claims}


def placed(queue: Queue, subject: str, partitions: int) -> list[str]:
    """Expand a subject; where it lies then."""
    words = ("tidemill", "expand", subject, "--partitions", str(partitions))
    queue.ask("exec", f"stream-{subject}", "--", *words)

    def lies() -> list[str]:
        return [str(one) for one in queue.get("subject", subject)["status"].get("brokerGroups", ())]

    wait_until("it lies on all", lambda: len(lies()) == partitions, WELL_SECONDS)
    return lies()
