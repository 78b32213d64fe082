"""Damaged logs: what must be good and is not refuses the start with its position; what was never promised is cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from crc32c import crc32c

from e2e.conftest import MakeQueue
from e2e.peers import Numbers, RawPeer, exchange
from e2e.queues import COMMAND, Queue, run_command, wait_until
from e2e.services import environment
from tidemill import Client
from tidemill_broker.doors.inspecting import Wanted, inspect
from tidemill_wire.batch import CHECKED_FROM, STAMP_BYTES, STAMP_CRC
from tidemill_wire.codec import Codec

pytestmark = pytest.mark.e2e

BATCHES = 20
MESSAGES = 50


def fill(queue: Queue) -> None:
    """Some batches; the queue does not run any more."""
    numbers = Numbers()
    with RawPeer(queue) as peer:
        for _ in range(BATCHES):
            assert peer.refused_batches(numbers.batch("damaged", [os.urandom(100)] * MESSAGES)) == []
    assert queue.stop() == 0


def filled(queue: Queue) -> Path:
    """The message log of a queue with some batches that does not run any more."""
    fill(queue)
    [log] = (queue.data / "message").iterdir()
    return log


def overwrite(log: Path, place: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(place)
        file.write(data)


def batch_places(log: Path) -> list[int]:
    """Where the batches begin, as the inspect command tells it."""
    done = run_command("inspect", "log", str(log), "--output", "json")
    assert done.returncode == 0, done.stderr
    return [int(found) for found in re.findall(r'"position": (\d+)', done.stdout)]


@pytest.mark.parametrize(
    ("folder", "end"), [("message", "stopped"), ("message", "killed"), ("action", "killed")]
)
def test_damage_in_the_middle_refuses_the_start_and_says_where(queue: Queue, folder: str, end: str) -> None:
    filled(queue)
    queue.start()
    asyncio.run(exchange(queue.server, "damaged.too", 20))
    wait_until("all that was answered is known to be synced", lambda: synced(queue))
    asyncio.run(exchange(queue.server, "damaged.too", 1))
    if end == "killed":
        queue.kill()
    else:
        assert queue.stop() == 0
    [log] = (queue.data / folder).iterdir()
    places = batch_places(log)
    place = next(one for one in places if one > log.stat().st_size * 2 // 3)
    overwrite(log, place, b"\xff" * 16)
    size = log.stat().st_size
    queue.launch()
    assert queue.wait_end() == 1
    assert str(place) in queue.errors
    assert "tidemill inspect log" in queue.errors
    assert "Traceback" not in queue.errors
    assert log.stat().st_size == size  # nothing was cut
    found = run_command("inspect", "log", str(queue.data))
    assert found.returncode == 1
    assert f"position {place} (byte {place} of the file)" in found.stderr


def synced(queue: Queue) -> bool:
    """The action log says that the disk has what was written, as it does a moment after."""
    lines: list[str] = []
    inspect(Wanted(str(queue.data / "action" / f"{0:020}.log"), "json"), lines.append, lines.append)
    actions = [row["action"] for row in map(json.loads, lines) if "action" in row]
    return "SYNCED" in actions[-2:]


def test_a_torn_tail_is_cut_with_a_line_and_a_copy(make_queue: MakeQueue) -> None:
    queue = make_queue().start()
    numbers = Numbers()
    with RawPeer(queue) as peer:
        for _ in range(BATCHES):
            peer.refused_batches(numbers.batch("torn", [b"x"] * MESSAGES))
    queue.kill()
    [log] = (queue.data / "message").iterdir()
    good = log.stat().st_size
    with log.open("ab") as file:  # as if the process died in the middle of a write
        file.write(log.read_bytes()[:1000])
    assert run_command("inspect", "log", str(queue.data)).returncode == 1
    queue.start()
    assert re.search(r"cut 1,000 bytes of a torn message log", queue.errors), queue.errors
    assert log.stat().st_size == good
    [copy] = (queue.data / "aside").iterdir()
    assert copy.stat().st_size == 1000
    asyncio.run(exchange(queue.server, "torn.after"))
    assert queue.stop() == 0
    assert run_command("inspect", "log", str(queue.data)).returncode == 0
    queue.start()
    assert queue.errors == ""


def test_a_damaged_body_is_noticed_by_inspect_and_by_who_reads_it(queue: Queue) -> None:
    """A bit that flips in an old message is found by its checksum; the messages around it arrive."""
    log = filled(queue)
    place = batch_places(log)[5]
    overwrite(log, place + 1000, b"\0" * 8)
    found = run_command("inspect", "log", str(queue.data))
    assert (found.returncode, f"position {place}" in found.stderr) == (1, True)
    queue.start()
    assert asyncio.run(count_around(queue.server)) == (BATCHES - 1) * MESSAGES


async def count_around(server: str) -> int:
    got = 0
    async with Client(server) as mq, mq.consume("damaged", group="reader") as messages:
        async with asyncio.timeout(20):
            async for batch in messages.batches():
                got += len(batch)
                if got == (BATCHES - 1) * MESSAGES:
                    assert messages.statistics["corrupt"] > 0
                    return got
    raise AssertionError("unreachable")


def test_a_message_that_nobody_can_read_does_not_go_in_a_circle(queue: Queue) -> None:
    """A batch whose sums are right and whose compressed column is not: only who unpacks it can know."""
    poison = Numbers(2).batch("poisoned", [b"0" * 1000] * 100, codec=Codec.LZ4)
    poison[-40:-8] = os.urandom(32)
    STAMP_CRC.pack_into(poison, STAMP_BYTES, crc32c(memoryview(poison)[CHECKED_FROM:]))
    numbers = Numbers(1)
    with RawPeer(queue) as peer:
        for batch in (numbers.batch("poisoned", [b"before"]), poison, numbers.batch("poisoned", [b"after"])):
            assert peer.refused_batches(batch) == []
    assert asyncio.run(read_around(queue.server)) == ([b"before", b"after"], 100)
    assert queue.metrics()["tidemill_messages_nacked_total"] == 100, "once each"


async def read_around(server: str) -> tuple[list[bytes], int]:
    """What can be read, and how many could not."""
    bodies: list[bytes] = []
    async with Client(server) as mq, mq.consume("poisoned", group="reader") as messages:
        try:
            async with asyncio.timeout(2):
                while True:
                    bodies.append((await anext(messages)).body)
        except TimeoutError:
            pass
        return bodies, messages.statistics["corrupt"]


def test_a_folder_that_holds_no_log_is_said_to_hold_none(tmp_path: Path) -> None:
    done = run_command("inspect", "log", str(tmp_path))
    assert done.returncode == 1
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert "holds no segment" in done.stderr


def test_a_lost_checkpoint_costs_time_and_nothing_else(queue: Queue) -> None:
    filled(queue)
    for checkpoint in (queue.data / "checkpoint").iterdir():
        overwrite(checkpoint, checkpoint.stat().st_size // 2, b"\xff\xff\xff")
    queue.start()
    assert queue.get("/v1/subjects")[0]["messages"] == BATCHES * MESSAGES


def test_a_damaged_row_is_noticed_before_it_leads_astray_and_mended_by_a_start(make_queue: MakeQueue) -> None:
    """A row's first sequence one higher would pass over a message in silence: no sum of a batch could tell."""
    queue = make_queue(settings={"TIDEMILL_SEGMENT_BATCHES": "4"}).start()
    fill(queue)
    run = min((queue.data / "consume").iterdir())
    good = run.read_bytes()
    place = good.index(struct.pack("<Q", MESSAGES), good.index(b"TMRN") + 16 + 48 + 8)
    overwrite(run, place, struct.pack("<Q", MESSAGES + 1))
    queue.start()

    status = run_command("browse", "damaged", server=queue.server)
    assert (status.returncode, status.stderr.count("\n")) == (1, 1)
    assert run.name in status.stderr
    with contextlib.suppress(TimeoutError):
        asyncio.run(consumed(queue.server, 3))
    assert queue.wait_end() == 1
    assert f"consume/{run.name} was damaged and is removed" in queue.errors
    assert queue.errors.count("\n") == 1
    queue.start()
    assert asyncio.run(consumed(queue.server, 20)) == list(range(BATCHES * MESSAGES))
    assert run.read_bytes() == good


async def consumed(server: str, seconds: float) -> list[int]:
    """All sequences, in their order."""
    found: set[int] = set()
    async with (
        asyncio.timeout(seconds),
        Client(server) as mq,
        mq.consume("damaged", group="reader") as messages,
    ):
        async for batch in messages.batches():
            found.update(batch.sequences)
            if len(found) == BATCHES * MESSAGES:
                break
    return sorted(found)


@pytest.mark.parametrize(
    ("output", "said"), [("/dev/full", "disk is full"), ("pipe", "reader of the output is gone")]
)
@pytest.mark.parametrize("option", [(), ("--verify",)])
def test_output_that_cannot_be_written_is_one_sentence(
    queue: Queue, output: str, said: str, option: tuple[str, ...]
) -> None:
    fill(queue)
    command = [*COMMAND, "inspect", "log", str(queue.data), *option]
    with contextlib.ExitStack() as stack:
        if output == "pipe":
            reader, writer = os.pipe()
            os.close(reader)
            stdout = stack.enter_context(os.fdopen(writer, "wb"))
        else:
            stdout = stack.enter_context(open(output, "wb"))
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
        )
    errors = done.stderr.decode()
    assert done.returncode == 1
    assert errors.startswith("tidemill: ")
    assert said in errors
    assert errors.count("\n") == 1
