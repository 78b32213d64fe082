"""What runs in processes of its own while a cluster is stormed: a producer, consumers that share, workers by key.

``python storm_programs.py produce|consume|work SERVER DIARY OPTIONS`` writes what happens to a diary, a line an event.
The producer's is for one process, and whole when that has ended; the others append, a write a line, so the order of
the lines is that of the events in whichever process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO

from tidemill import BrokerUnreachable, Client, ClientSettings, LeaseLost, Message, TidemillError, Worker

SHARED, ORDERED, PROBE = "storm.shared", "storm.ordered", "storm.probe"
KEYS = 64
ORDERED_SHARE = 10
"""One in so many messages has an order key."""
BEAT_SECONDS, PROBE_SECONDS = 0.02, 0.05
HANDLER_SECONDS = 0.005
PATIENT = ClientSettings(send_timeout_s=120)


def ended() -> asyncio.Event:
    """Set by SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    return over


class Producing:
    """Sends at a rate whatever becomes of what was sent before, so that what stalls is seen and not spared."""

    def __init__(self, mq: Client, diary: IO[str], tasks: asyncio.TaskGroup) -> None:
        self._mq = mq
        self._diary = diary
        self._tasks = tasks
        self._shared = 0
        self._steps = [0] * KEYS
        self._turn = count()

    def send(self, due: int) -> None:
        """So many messages, a share of them with order keys."""
        with_keys = sum(1 for _ in range(due) if next(self._turn) % ORDERED_SHARE == 0)
        if many := due - with_keys:
            self._tasks.create_task(self._send_shared(self._shared, self._shared + many))
            self._shared += many
        for _ in range(with_keys):
            key = sum(self._steps) % KEYS
            self._tasks.create_task(self._send_ordered(key, self._steps[key]))
            self._steps[key] += 1

    async def _send_shared(self, first: int, end: int) -> None:
        asked = time.monotonic()
        try:
            receipts = await self._mq.send_many(SHARED, [b"%d" % number for number in range(first, end)])
            assert len(receipts) == end - first
        except TidemillError as error:
            self._note("failed", asked, "shared", first, end, error)
        else:
            self._note("shared", asked, first, end)

    async def _send_ordered(self, key: int, step: int) -> None:
        asked = time.monotonic()
        try:
            await self._mq.send(ORDERED, b"%d" % step, order_key=f"k-{key}")
        except TidemillError as error:
            self._note("failed", asked, "ordered", key, step, error)
        else:
            self._note("ordered", asked, key, step)

    async def probe(self, group: str, number: int) -> None:
        """To a subject that one broker group has: it is answered when that group takes writes."""
        asked = time.monotonic()
        try:
            await self._mq.send(f"{PROBE}.{group}", b"%d" % number)
        except TidemillError as error:
            self._note("failed", asked, "probe", group, number, error)
        else:
            self._note("probe", asked, group, number)

    def _note(self, word: str, asked: float, *more: object) -> None:
        said = " ".join(map(str, more)).replace("\n", " ")
        self._diary.write(f"{word} {asked:.4f} {time.monotonic():.4f} {said}\n")


async def wait_produced(server: str, diary: Path, rate: int, groups: list[str]) -> None:
    """Until SIGTERM, and until all is answered."""
    over, loop = ended(), asyncio.get_running_loop()
    with diary.open("w", buffering=1) as file:  # by the line: a test waits for the first ones
        async with Client(server, settings=PATIENT) as mq, asyncio.TaskGroup() as tasks:
            producing = Producing(mq, file, tasks)
            began, sent, probed = loop.time(), 0, 0
            while not over.is_set():
                passed = loop.time() - began
                producing.send(int(passed * rate) - sent)
                sent = int(passed * rate)
                if passed > probed * PROBE_SECONDS:
                    probed += 1
                    for group in groups:
                        tasks.create_task(producing.probe(group, probed))
                await asyncio.sleep(BEAT_SECONDS)


async def consume(server: str, diary: Path, name: str) -> None:
    """Take batches and ack them; the numbers of their messages are noted before and after."""
    over = ended()
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle() -> None:
        async with mq.consume(SHARED, group="storm-shared", name=name) as messages:
            async for batch in messages.batches():
                numbers = b",".join(batch.bodies)
                os.write(file, b"given %s\n" % numbers)
                with suppress(LeaseLost, BrokerUnreachable):
                    if await batch.ack():
                        os.write(file, b"acked %s\n" % numbers)

    async with Client(server, settings=PATIENT) as mq, asyncio.TaskGroup() as tasks:
        handling = tasks.create_task(handle())
        await over.wait()
        handling.cancel()


def work(server: str, diary: Path) -> int:
    """Handle messages by key; each one is noted when it is begun, when it is ended, and when its ack was answered."""
    worker = Worker(server)
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(word: str, message: Message) -> None:
        assert message.order_key is not None
        key, step = message.order_key.removeprefix("k-"), message.body.decode()
        line = f"{word} {os.getpid()} {key} {step} {time.monotonic():.4f}\n"
        os.write(file, line.encode())

    @worker.on(ORDERED, group="storm-ordered", by_key=True, concurrency=KEYS)
    async def handle(message: Message) -> None:
        note("began", message)
        await wait_as_work()
        note("ended", message)

    @worker.acked
    def acked(message: Message, _context: object) -> None:
        note("acked", message)

    assert handle is not None
    assert acked is not None
    worker.run()
    return 0


async def wait_as_work() -> None:
    """A handler takes time, and no processor."""
    await asyncio.sleep(HANDLER_SECONDS)


def main() -> int:
    what, server, diary, *options = sys.argv[1:]
    match what:
        case "produce":
            asyncio.run(wait_produced(server, Path(diary), int(options[0]), options[1:]))
        case "consume":
            asyncio.run(consume(server, Path(diary), options[0]))
        case "work":
            return work(server, Path(diary))
        case _:
            raise SystemExit(f"{what} is not produce, consume or work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
