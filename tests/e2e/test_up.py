"""A queue starts, says one sentence when it cannot, drains when it is asked to stop, and keeps what it was told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from e2e.conftest import MakeQueue
from e2e.peers import Numbers, RawPeer, exchange
from e2e.queues import BROKER, COMMAND, Queue, run_command, wait_until
from e2e.services import environment
from e2e.terminals import Terminal
from tidemill import BrokerUnreachable, Client, ClientSettings, OutcomeUnknown, Unavailable
from tidemill_wire import limits
from tidemill_wire.commands import Pull, Pulled, SendBatches, Sent, encode_command

pytestmark = pytest.mark.e2e

READY_SECONDS = 1.0
REST_BYTES = 120 * limits.MIB
SHARED_MACHINE = 3
"""Times are asserted with this slack: others work on the same two cores."""
HEAD = "---\napiVersion: tidemill.dev/v1alpha1\n"


def refused_start(queue: Queue) -> str:
    """Start what must not start: exit code 1 and exactly one sentence."""
    queue.launch()
    assert queue.wait_end() == 1
    assert queue.errors.count("\n") == 1, queue.errors
    assert queue.errors.startswith("tidemill: ")
    assert "Traceback" not in queue.errors
    return queue.errors


def test_an_empty_queue_is_ready_at_once_and_small(make_queue: MakeQueue) -> None:
    queues = [make_queue(f"empty-{number}") for number in range(3)]
    ready = min(queue.start().ready_seconds for queue in queues)
    rest = queues[0].memory_bytes()
    print(f"\nready after {ready:.2f} s, {rest / limits.MIB:.0f} MiB at rest")
    assert ready < READY_SECONDS * SHARED_MACHINE
    assert rest < REST_BYTES
    assert queues[0].get("/healthz") == {"status": "ok"}
    assert queues[0].get("/readyz") == {"status": "ready"}
    assert queues[0].errors == ""


def test_the_console_command_is_the_same_queue(make_queue: MakeQueue) -> None:
    queue = make_queue(command=COMMAND).start()
    asyncio.run(exchange(queue.server, "hello"))
    assert queue.stop() == 0
    assert queue.errors == ""


def test_a_second_queue_on_the_folder_is_refused_with_the_first_ones_process_id(
    queue: Queue, make_queue: MakeQueue
) -> None:
    assert str(queue.pid) in refused_start(make_queue(queue.data.name))
    asyncio.run(exchange(queue.server, "still.there"))
    queue.kill()
    queue.start()  # a lock that a killed process left behind holds nobody up


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_port_that_is_taken_is_one_sentence(make_queue: MakeQueue, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        queue = make_queue()
        if option == "--port":
            queue.port = taken.getsockname()[1]
        else:
            queue.http_port = taken.getsockname()[1]
        assert option in refused_start(queue)
    queue.port = queue.http_port = 0
    queue.start()


def test_a_folder_that_cannot_be_written_is_one_sentence(make_queue: MakeQueue, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "--data" in refused_start(make_queue("file"))
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in refused_start(make_queue("locked"))


BAD_MANIFESTS = {
    "no yaml": ("a: [b", "YAML"),
    "no manifest": ("hello", "apiVersion"),
    "a typing error": (
        HEAD + "kind: Subject\nmetadata: {name: x}\nspec: {retension: {}}\n",
        "retention",
    ),
    "a bad value": (
        HEAD + "kind: Subject\nmetadata: {name: x}\nspec: {config: [{name: durability, value: extreme}]}\n",
        "durability",
    ),
    "a group of nothing": (HEAD + "kind: ConsumerGroup\nmetadata: {name: g}\nspec: {}\n", "subject"),
    "no text": ("\udcff\udcfe", "UTF-8"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_one_sentence_with_its_place(
    make_queue: MakeQueue, tmp_path: Path, name: str
) -> None:
    text, named = BAD_MANIFESTS[name]
    manifest = tmp_path / "bad.yaml"
    manifest.write_bytes(text.encode(errors="surrogateescape"))
    sentence = refused_start(make_queue(manifests=[manifest]))
    assert "bad.yaml" in sentence
    assert named in sentence


def test_a_manifest_that_is_missing_is_one_sentence(make_queue: MakeQueue, tmp_path: Path) -> None:
    assert "absent.yaml" in refused_start(make_queue(manifests=[tmp_path / "absent.yaml"]))


@pytest.mark.parametrize("value", ["much", "-1", "0", "1e9"])
def test_a_bad_setting_is_one_sentence(make_queue: MakeQueue, value: str) -> None:
    sentence = refused_start(make_queue(settings={"TIDEMILL_SEGMENT_BYTES": value}))
    assert "TIDEMILL_SEGMENT_BYTES" in sentence


DECLARED = (
    HEAD
    + "kind: Subject\nmetadata: {name: orders}\nspec: {message: {maxBytes: 1024}, "
    + "config: [{name: durability, value: low}]}\n"
    + HEAD
    + "kind: ConsumerGroup\nmetadata: {name: billing}\n"
    + "spec: {subjectRef: {name: orders}, startFrom: {position: Latest}, delivery: {ackTimeoutSeconds: 2}}\n"
)


def test_manifests_declare_subjects_and_groups_and_a_restart_keeps_them(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(DECLARED)
    queue = make_queue(manifests=[manifest]).start()
    subject = next(row for row in queue.get("/v1/subjects") if row["name"] == "orders")
    assert (subject["durability"], subject["groups"]) == ("low", 1)
    with RawPeer(queue) as peer:
        [(_, detail)] = peer.refused_batches(Numbers().batch("orders", [bytes(1025)]))
        assert "1024" in detail
        assert peer.refused_batches(Numbers(2).batch("orders", [bytes(1024)])) == []
    assert queue.group("billing")["lag"] == 1  # it starts at what came after it was declared
    assert queue.stop() == 0
    again = make_queue(queue.data.name).start()  # without the manifests
    assert next(row for row in again.get("/v1/subjects") if row["name"] == "orders")["durability"] == "low"
    assert again.group("billing")["lag"] == 1


def test_the_lease_of_a_manifest_counts(make_queue: MakeQueue, tmp_path: Path) -> None:
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(DECLARED)
    queue = make_queue(manifests=[manifest]).start()
    asyncio.run(take_over(queue))


async def take_over(queue: Queue) -> None:
    """Who says nothing any more loses its message to another one, in two seconds and not in sixty."""
    async with Client(queue.server) as mq:
        await mq.send("orders", b"one")
        with RawPeer(queue) as silent:
            pulled = silent.ask(Pull("billing", "silent", ["orders"], 1, 1, 0))
            assert isinstance(pulled, Pulled)
            assert [(grant.count, grant.attempts) for grant in pulled.grants] == [(1, 0)]
            async with mq.consume("orders", group="billing") as messages, asyncio.timeout(10):
                message = await anext(messages)
            assert (message.body, message.attempts) == (b"one", 1)


# -- stopping ------------------------------------------------------------------------------------------------------


def test_a_stopped_queue_has_answered_what_it_took(make_queue: MakeQueue) -> None:
    """SIGTERM in the middle of sends: exit code 0; what was answered is there, the rest is not answered as stored."""
    queue = make_queue().start()
    answered = asyncio.run(send_until_stopped(queue))
    assert queue.wait_end() == 0
    assert queue.errors == ""
    assert answered
    queue.start()
    assert asyncio.run(bodies_of(queue.server, "stopping", len(answered))) >= answered


async def send_until_stopped(queue: Queue) -> set[bytes]:
    answered: set[bytes] = set()
    settings = ClientSettings(send_timeout_s=2.0)
    async with Client(queue.server, settings=settings) as mq:

        async def lane(number: int) -> None:
            at = 0
            while True:
                body = f"{number}/{at}".encode()
                at += 1
                try:
                    await mq.send("stopping", body)
                except (BrokerUnreachable, OutcomeUnknown, Unavailable):
                    return
                answered.add(body)
                if len(answered) == 500:
                    queue.signal(signal.SIGTERM)

        async with asyncio.timeout(30), asyncio.TaskGroup() as lanes:
            for number in range(8):
                lanes.create_task(lane(number))
    return answered


async def bodies_of(server: str, subject: str, count: int) -> set[bytes]:
    """All bodies of a subject, read by a new group."""
    found: set[bytes] = set()
    async with Client(server) as mq, mq.consume(subject, group="reader") as messages:
        async with asyncio.timeout(30):
            async for batch in messages.batches():
                found.update(batch.bodies)
                if len(found) >= count:
                    return found
    raise AssertionError("unreachable")


def test_frames_in_flight_at_the_stop_are_answered_or_refused(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    numbers = Numbers()
    with RawPeer(queue) as peer, RawPeer(queue) as idle:
        sends = [SendBatches(numbers.batch("late", [bytes(1000)])) for _ in range(500)]
        peer.say(b"".join(map(encode_command, sends, range(500))))
        queue.signal(signal.SIGTERM)
        stored = 0
        while (event := peer.hear()) is not None:
            command = getattr(event, "command", None)
            stored += isinstance(command, Sent) and command.first_sequences[0] >= 0
        assert idle.hear() is not None  # it is told goodbye
    assert queue.wait_end() == 0
    queue.start()
    kept = {row["name"]: row["messages"] for row in queue.get("/v1/subjects")}
    assert kept.get("late", 0) >= stored


def test_half_a_request_does_not_hold_up_the_stop(queue: Queue) -> None:
    with socket.create_connection((queue.host, queue.http_port)) as web, RawPeer(queue) as peer:
        web.sendall(b"GET /v1/rou")
        peer.say(b"\0\0\1\0\x10\0\0\0")
        assert queue.stop() == 0


def test_a_parked_pull_is_told_of_the_stop(queue: Queue) -> None:
    done = run_command("consume", "nothing", "--timeout", "1", server=queue.server)
    assert done.returncode == 0
    asyncio.run(exchange(queue.server, "x"))
    assert queue.stop() == 0


# -- many ----------------------------------------------------------------------------------------------------------


def test_ten_thousand_subjects_fit(make_queue: MakeQueue) -> None:
    """Below a GiB with a group each, and started again in seconds."""
    count = 10_000
    queue = make_queue().start()
    asyncio.run(fill_subjects(queue.server, count))
    filled = queue.memory_bytes()
    assert queue.stop() == 0
    queue.start()
    again = queue.memory_bytes()
    print(
        f"\n{count} subjects: {filled / limits.MIB:.0f} MiB after filling, {again / limits.MIB:.0f} MiB after a "
        f"restart, which took {queue.ready_seconds:.2f} s"
    )
    assert max(filled, again) < limits.GIB
    assert queue.ready_seconds < 10
    assert len(queue.get("/v1/subjects")) == count
    assert len(queue.get("/v1/groups")) == count
    asyncio.run(exchange(queue.server, "one.more"))
    queue.kill()
    queue.start()
    assert queue.ready_seconds < 10


async def fill_subjects(server: str, count: int) -> None:
    names = [f"subject.{number}" for number in range(count)]
    async with Client(server) as mq:
        await mq.send_each([(name, b"one") for name in names])
        for first in range(0, count, 1000):
            async with mq.consume(names[first : first + 1000], group="all") as messages:
                await anext(messages)


def test_old_segments_are_dropped_and_new_ones_kept(make_queue: MakeQueue, tmp_path: Path) -> None:
    manifest = tmp_path / "small.yaml"
    manifest.write_text(
        f"{HEAD}kind: Subject\nmetadata: {{name: small}}\nspec: {{retention: {{maxBytes: {4 * limits.MIB}}}}}\n"
    )
    queue = make_queue(manifests=[manifest], settings={"TIDEMILL_SEGMENT_BYTES": str(limits.MIB)}).start()
    numbers = Numbers()
    with RawPeer(queue) as peer:
        for _ in range(30):
            assert peer.refused_batches(numbers.batch("small", [bytes(1000)] * 500)) == []
    folder = queue.data / "message"
    before = len(list(folder.iterdir()))
    assert before >= 14
    wait_until("old segments are gone", lambda: len(list(folder.iterdir())) <= 7, 30)
    row = next(row for row in queue.get("/v1/subjects") if row["name"] == "small")
    assert row["next_sequence"] == 15_000
    assert row["first_sequence"] >= 15_000 - 7 * 1100
    got = asyncio.run(first_sequence(queue.server, "small"))
    assert got == row["first_sequence"]
    queue.kill()
    queue.start()
    assert asyncio.run(first_sequence(queue.server, "small", "another")) == got


async def first_sequence(server: str, subject: str, group: str = "late") -> int:
    async with Client(server) as mq, mq.consume(subject, group=group) as messages:
        return (await anext(messages)).sequence


@pytest.mark.parametrize(
    "host, named", [("nowhere.invalid", "looked up"), ("192.0.2.1", "no address of this machine")]
)
def test_a_host_that_is_none_here_is_one_sentence_about_it(
    make_queue: MakeQueue, host: str, named: str
) -> None:
    sentence = refused_start(make_queue(options=["--host", host]))
    assert host in sentence
    assert named in sentence
    assert "port" not in sentence


IPV6 = pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")


@IPV6
@pytest.mark.parametrize("command", [BROKER, COMMAND])
def test_an_address_of_ipv6_is_a_url_and_what_clients_take(
    make_queue: MakeQueue, command: tuple[str, ...]
) -> None:
    queue = make_queue(command=command, options=["--host", "::1"]).start()
    assert queue.server == f"[::1]:{queue.http_port}"
    asyncio.run(exchange(queue.server, "six"))
    assert run_command("send", "six", "b", "--server", queue.server).returncode == 0
    assert run_command("subjects", server=queue.server).stdout.count("six") == 1
    assert run_command("status", server=queue.server).returncode == 0
    assert queue.stop() == 0


def test_a_person_is_told_what_to_type_and_it_works_as_it_is_pasted(make_queue: MakeQueue) -> None:
    """On a terminal, in a folder and with a path that do not know the environment; elsewhere it is one line."""
    queue = make_queue(command=COMMAND)
    shown = b""
    with Terminal() as terminal:
        process = queue.spawn([*queue.command, "--port", "0", "--http-port", "0"], stdout=terminal.theirs)
        terminal.leave()
        while b"Ctrl-C stops the queue" not in shown:
            shown += terminal.read(60)
        typed = [line.strip() for line in shown.decode().split("\r\n") if line.startswith("  ")]
        assert len(typed) == 2
        clean = {**environment(), "PATH": "/usr/bin:/bin"}
        for line in typed:
            done = subprocess.run(
                line, shell=True, cwd="/", env=clean, capture_output=True, timeout=60, check=True
            )
        assert done.stdout == b"first message\n"
        process.send_signal(signal.SIGINT)
        assert queue.wait_end() == 0


def test_settings_are_told_once_on_standard_error_and_not_to_a_terminal(make_queue: MakeQueue) -> None:
    queue = make_queue(command=COMMAND, settings={"TIDEMILL_LEASE_MS": "12345"}).start()
    broker, locks, meta, delay = queue.settings
    assert broker.startswith('tidemill: settings service=broker name="g0-0" replicated=false ')
    assert " lease_ms=12345 " in broker
    assert locks.startswith('tidemill: settings service=locks tls_cert="" ')
    assert meta.startswith('tidemill: settings service=meta name="standalone" ')
    assert delay.startswith('tidemill: settings service=delay name="delay-0" ')
    assert queue.stop() == 0

    with Terminal() as terminal:
        command = [*queue.command, "--port", "0", "--http-port", "0"]
        with subprocess.Popen(command, stdout=terminal.theirs, stderr=terminal.theirs) as process:
            terminal.leave()
            shown = ""
            while "Ctrl-C stops the queue" not in shown:
                shown += terminal.read(60).decode()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert "settings" not in shown
