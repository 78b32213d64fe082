"""A broker is killed while messages are handled, and who handled them ends before it is back: nothing is handled twice.

The acks wait in the spool, and the next process tells them.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from e2e.queues import Queue, wait_until
from e2e.services import environment
from e2e.workers import Workers
from tidemill import Client

pytestmark = pytest.mark.e2e

COUNT = 50
MORE = 10
MODULE = """
import asyncio, os, time
from pathlib import Path
from tidemill import ClientSettings, Worker

worker = Worker(settings=ClientSettings(spool_path=os.environ["SPOOL"], spool_after_s=0.2))
diary = os.open(os.environ["DIARY"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
go = Path(os.environ["GO"])


def note(word, message):
    line = f"\\n{word} {os.getpid()} {time.monotonic():.6f} {message.attempts} {message.body.decode()} ;\\n"
    os.write(diary, line.encode())


@worker.on("orders", group="workers", concurrency=50)
async def handle(message):
    note("began", message)
    while not go.exists():
        await asyncio.sleep(0.02)
    note("ended", message)


@worker.acked
def acked(message, context):
    note("acked", message)
"""
PROGRAM = """
import asyncio, sys
from tidemill import Client, ClientSettings


async def main(server, spool, count):
    settings = ClientSettings(spool_after_s=0.2)
    async with Client(server, settings=settings, spool=spool) as mq:
        async with mq.consume("orders", group="program", name="it") as messages:
            held = [await messages.take() for _ in range(count)]
            for message in held:
                print("took", message.body.decode(), message.attempts, flush=True)
            sys.stdin.readline()
            for told, message in zip(await asyncio.gather(*(message.ack() for message in held)), held):
                print("told" if told else "kept", message.body.decode(), message.attempts, flush=True)
            sys.stdin.readline()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def send(queue: Queue, first: int, count: int) -> None:
    async def sending() -> None:
        async with Client(queue.server) as mq:
            await mq.send_many("orders", [f"o-{number}".encode() for number in range(first, first + count)])

    asyncio.run(sending())


def test_a_worker_that_ends_while_its_broker_is_dead_has_nothing_handled_again(
    queue: Queue, tmp_path: Path
) -> None:
    go, spool = tmp_path / "go", tmp_path / "spool"
    workers = Workers(tmp_path, queue, MODULE)
    settings = {"GO": str(go), "SPOOL": str(spool)}
    try:
        first = workers.start(**settings)
        send(queue, 0, COUNT)
        wait_until("all are begun", lambda: len(workers.diary("began")) == COUNT, 30)
        queue.kill()
        go.touch()
        wait_until("all are handled", lambda: len(workers.diary("ended")) == COUNT)
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 0, workers.errors(first)
        assert not workers.diary("acked")
        assert spool.with_name("spool.acks").stat().st_size > 100
        queue.start()
        second = workers.start(**settings)
        send(queue, COUNT, MORE)
        wait_until("the rest is acked", lambda: len(workers.diary("acked")) == MORE, 30)
        wait_until("all are settled", lambda: queue.group("workers")["acked"] == COUNT + MORE, 30)
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 0, workers.errors(second)
    finally:
        workers.close()
    begun = Counter(line.body for line in workers.diary("began"))
    again = {body: count for body, count in begun.items() if count > 1}
    print(f"\nhandled {len(begun)}, acked into the spool {COUNT}, acked then again {len(again)}")
    assert len(begun) == COUNT + MORE
    assert not again
    assert spool.with_name("spool.acks").stat().st_size == 8, "nothing is left in it"


class Program:
    """A consumer in a process of its own, told by a line when to go on."""

    def __init__(self, queue: Queue, spool: Path, count: int) -> None:
        arguments = [sys.executable, "-c", PROGRAM, queue.server, str(spool), str(count)]
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        )

    def read(self, count: int) -> list[tuple[str, str, int]]:
        """What it does, for whom, and how often that was given out before."""
        assert self.process.stdout is not None
        words = [self.process.stdout.readline().split() for _ in range(count)]
        return [(word, body, int(attempts)) for word, body, attempts in words]

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def test_a_consumer_killed_after_its_broker_is_not_given_again_what_its_spool_holds(
    queue: Queue, tmp_path: Path
) -> None:
    """The broker kept the leases; the next process of that name is fresh, and all it does not name would fail."""
    send(queue, 0, COUNT)
    program = Program(queue, tmp_path / "spool", COUNT)
    try:
        taken = program.read(COUNT)
        assert {body for _, body, _ in taken} == {f"o-{number}" for number in range(COUNT)}
        queue.kill()
        program.go_on()
        assert {word for word, _, _ in program.read(COUNT)} == {"kept"}
    finally:
        program.end()
    queue.start()
    send(queue, COUNT, MORE)
    program = Program(queue, tmp_path / "spool", MORE)
    try:
        taken = program.read(MORE)
        assert sorted(taken) == [("took", f"o-{number}", 0) for number in range(COUNT, COUNT + MORE)]
        program.go_on()
        assert {word for word, _, _ in program.read(MORE)} == {"told"}
        wait_until("all are settled", lambda: queue.group("program")["acked"] == COUNT + MORE)
        assert queue.group("program")["failed"] == 0
    finally:
        program.end()
