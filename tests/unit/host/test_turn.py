"""One turn: all that came is decided in one pass, persisted, and only then answered."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from samples.brokers import empty_disk, put_file, read_file
from samples.lanes import HandLane, StandingClock, hand_lanes, turns
from sim.weather import Weather
from tidemill_host.files import Files
from tidemill_host.machine import Append, Buffer, Durability, Mark, Peer, Read, Ready, Send, Slice, Unread
from tidemill_host.turn import UNREAD_MAX, Turn
from tidemill_wire.vigil import Mood, Vigil

LOG = "message/0.log"


class Toy:
    """Writes each event, and answers it at the level that the event begins with: ``w``, ``s``, or ``n`` for none.

    It has a mistake where ``mistaken`` says: in ``received`` of ``x``, or in all of one of the others.
    """

    def __init__(self) -> None:
        self.mistaken = ""
        self.heard: list[str] = []
        self.next = Ready()
        self.wake_at_ms: int | None = None
        self.passes = 0

    def err(self, place: str) -> None:
        if self.mistaken == place:
            raise AssertionError("what nobody had foreseen")

    def connected(self, peer: Peer, now_ms: int) -> None:
        self.err("connected")
        self.heard.append(f"connected {peer}")

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
        self.err("disconnected")
        self.heard.append(f"gone {peer}")

    def received(self, peer: Peer, command: str, now_ms: int) -> None:
        self.heard.append(f"{peer}: {command}")
        data = command.encode()
        match command[0]:
            case "r":
                self.next.reads.append(Read(7, Slice(LOG, 0, 4)))
                return
            case "x":
                self.err("received")
            case "d":
                self.next.drops.append(peer)
                return
            case "n":
                pass
            case level:
                self.next.writes.append(Append(LOG, [data], len(data)))
                after = Durability.SYNCED if level == "s" else Durability.WRITTEN
                self.next.sends.append(Send(peer, data, after=after))
                return
        self.next.sends.append(Send(peer, data))

    def ticked(self, now_ms: int) -> None:
        self.err("ticked")
        self.heard.append("tick")
        self.wake_at_ms = now_ms + 60_000

    def persisted(self, mark: Mark, now_ms: int) -> None:
        self.err("persisted")
        self.heard.append(f"persisted {mark.written} {mark.synced}")

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None:
        self.err("loaded")
        self.heard.append(f"loaded {token} {data if isinstance(data, Unread) else bytes(data).decode()}")

    def ready(self) -> Ready:
        self.err("ready")
        self.passes += bool(self.next)
        ready, self.next = self.next, Ready()
        ready.wake_at_ms = self.wake_at_ms
        return ready


class Bench:
    def __init__(self) -> None:
        self.toy = Toy()
        self.disk = empty_disk()
        self.lanes = hand_lanes()
        self.clock = StandingClock()
        self.errors: list[Exception] = []
        self.reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.reported.append(context.get("exception"))
        )
        self.sent: list[str] = []
        self.dropped: list[Peer] = []
        self.turn: Turn[str] = Turn(self.toy, Files(self.disk.mount()), self.lanes, self.clock, self._failed)
        self.turn.deliver = lambda send: self.sent.append(send.head.decode())
        self.turn.drop = self.dropped.append

    def _failed(self, error: Exception) -> None:
        self.errors.append(error)
        self.turn.stop()

    @property
    def sync(self) -> HandLane:
        assert isinstance(self.lanes.sync, HandLane)
        return self.lanes.sync

    async def post(self, *commands: str) -> None:
        for command in commands:
            self.turn.post(Peer(1), command)
        await turns()


def on_a_loop(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        bench = Bench()
        await test(bench)
        bench.turn.stop()

    def wrapper() -> None:
        asyncio.run(run())

    wrapper.__name__, wrapper.__doc__ = test.__name__, test.__doc__
    return wrapper


@on_a_loop
async def test_all_that_came_is_decided_in_one_pass(bench: Bench) -> None:
    await bench.post("w1", "w2", "w3")

    assert bench.toy.heard[:3] == ["1: w1", "1: w2", "1: w3"]
    assert bench.toy.passes == 1
    assert bench.sent == ["w1", "w2", "w3"]
    assert read_file(bench.disk, LOG) == b"w1w2w3"
    assert "persisted 1 0" in bench.toy.heard


@on_a_loop
async def test_answer_that_asks_for_the_disk_waits_for_it_and_others_do_not(bench: Bench) -> None:
    await bench.post("s1", "w2")
    assert bench.sent == ["w2"]
    await bench.post("s3")
    await bench.sync.run()
    assert bench.sent == ["w2", "s1"]
    await bench.sync.run()

    assert bench.sent == ["w2", "s1", "s3"]
    assert [word for word in bench.toy.heard if word.startswith("persisted")] == [
        "persisted 1 0",
        "persisted 2 0",
        "persisted 2 1",
        "persisted 2 2",
    ]
    assert bench.turn.idle


@on_a_loop
async def test_repeated_answer_does_not_overtake_the_write_it_speaks_of(bench: Bench) -> None:
    await bench.post("s1")
    bench.toy.next.sends.append(Send(Peer(1), b"again", after=Durability.SYNCED))
    await bench.post("n")
    assert "again" not in bench.sent
    await bench.sync.run()

    assert bench.sent == ["n", "s1", "again"]


@on_a_loop
async def test_end_of_a_connection_comes_after_what_it_sent(bench: Bench) -> None:
    bench.turn.connected(Peer(1))
    bench.turn.post(Peer(1), "w1")
    bench.turn.disconnected(Peer(1))
    bench.turn.post(Peer(2), "w2")
    await turns()

    assert bench.toy.heard[:4] == ["connected 1", "1: w1", "gone 1", "2: w2"]


@on_a_loop
async def test_failed_disk_answers_nobody(bench: Bench) -> None:
    put_file(bench.disk, LOG, b"")
    bench.disk.fail_at["append"] = 0
    await bench.post("w1", "s2")
    await bench.post("w3")

    assert len(bench.errors) == 1
    assert bench.sent == []
    assert not any(word.startswith("persisted") for word in bench.toy.heard)


@pytest.mark.parametrize(
    "place", ["connected", "disconnected", "received", "ticked", "persisted", "loaded", "ready"]
)
def test_mistake_of_the_machine_ends_the_service_and_answers_nobody(place: str) -> None:
    """A machine that broke off in the middle of a decision is asked nothing more, whatever comes."""

    async def mistake(bench: Bench) -> None:
        put_file(bench.disk, LOG, b"warm")
        await bench.post("s1")
        bench.toy.mistaken = place
        bench.clock.now += 120
        bench.turn.connected(Peer(2))
        bench.turn.post(Peer(1), "r")
        bench.turn.post(Peer(1), "x")
        bench.turn.disconnected(Peer(2))
        await bench.post("w2")
        bench.toy.mistaken = ""
        heard, sent = list(bench.toy.heard), list(bench.sent)
        await bench.post("w3")
        await bench.sync.run()

        assert [str(error) for error in bench.errors] == ["what nobody had foreseen"]
        assert bench.reported == bench.errors, "once, with its traceback"
        assert (bench.toy.heard, bench.sent) == (heard, sent), "nothing more is asked or answered"
        assert "s1" not in sent
        assert bench.turn._timer is None

    on_a_loop(mistake)()


@on_a_loop
async def test_mistake_that_a_timer_meets_ends_the_service(bench: Bench) -> None:
    """Nobody is connected: only the machine's own alarm comes."""
    bench.toy.mistaken = "ticked"
    bench.turn.start()
    await turns()

    assert len(bench.errors) == len(bench.reported) == 1
    assert bench.turn._timer is None


@on_a_loop
async def test_mistake_of_a_lane_is_reported_with_its_place(bench: Bench) -> None:
    """Not an error of the disk: the code of a lane broke down."""

    def wrong() -> bytes:
        raise ValueError("what nobody had foreseen")

    bench.toy.next.reads.append(Read(7, wrong))
    await bench.post("n")
    assert isinstance(bench.lanes.read, HandLane)
    await bench.lanes.read.run()

    assert [type(error) for error in bench.errors] == [ValueError]
    assert bench.reported == bench.errors


@on_a_loop
async def test_disk_that_refuses_is_foreseen_and_not_reported(bench: Bench) -> None:
    put_file(bench.disk, LOG, b"")
    bench.disk.fail_at["append"] = 0
    await bench.post("w1")

    assert len(bench.errors) == 1
    assert bench.reported == []


@on_a_loop
async def test_stopped_turn_decides_nothing_more(bench: Bench) -> None:
    bench.turn.stop()
    await bench.post("w1")
    heard = list(bench.toy.heard)
    bench.clock.now += 100
    await turns()

    assert heard == bench.toy.heard == []
    assert bench.turn._timer is None


@on_a_loop
async def test_failed_sync_answers_nobody_and_leaves_no_timer(bench: Bench) -> None:
    await bench.post("s1")
    bench.disk.fail_at["sync"] = 0
    await bench.sync.run()

    assert (len(bench.errors), bench.sent) == (1, [])
    assert bench.turn._timer is None


@on_a_loop
async def test_read_is_answered_from_the_page_cache_or_by_the_lane(bench: Bench) -> None:
    put_file(bench.disk, LOG, b"warm")
    await bench.post("r")
    assert "loaded 7 warm" in bench.toy.heard
    bench.disk.weather = Weather(cold_reads=1.0)
    bench.toy.heard.clear()
    await bench.post("r")
    assert "loaded 7 warm" not in bench.toy.heard
    assert isinstance(bench.lanes.read, HandLane)
    await bench.lanes.read.run()
    assert bench.toy.heard[-1] == "loaded 7 warm"


@on_a_loop
async def test_bytes_that_the_disk_refuses_are_the_machines_to_judge_and_named_once(bench: Bench) -> None:
    put_file(bench.disk, LOG, b"cold")
    bench.disk.refuse(LOG, 2)
    named: list[str] = []
    bench.turn.unread = lambda unread: named.append(str(unread))
    assert isinstance(bench.lanes.read, HandLane)
    for _ in range(2):
        await bench.post("r")
        await bench.lanes.read.run()

    said = f"4 bytes at position 0 of {LOG} cannot be read (Input/output error)"
    assert named == [said]
    assert [one for one in bench.toy.heard if one.startswith("loaded")] == [f"loaded 7 {said}"] * 2
    assert bench.errors == []


@on_a_loop
async def test_disk_that_refuses_many_places_ends_the_service(bench: Bench) -> None:
    """Then it is not a place that is bad, and what is judged to be lost may all be there."""
    put_file(bench.disk, LOG, bytes(1000))
    bench.disk.refuse(LOG, 0, 1000)
    assert isinstance(bench.lanes.read, HandLane)
    for place in range(UNREAD_MAX + 1):
        assert not bench.errors
        bench.toy.next.reads.append(Read(place, Slice(LOG, place, 4)))
        await bench.post("n")
        await bench.lanes.read.run()

    [error] = bench.errors
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (errno.EIO, LOG)
    assert bench.reported == []


@on_a_loop
async def test_machine_is_ticked_when_it_asked_for_it(bench: Bench) -> None:
    bench.turn.start()
    await turns()
    assert bench.toy.heard == ["tick"]
    await bench.post("w1")
    assert bench.toy.heard.count("tick") == 1
    bench.clock.now += 60
    await bench.post("w2")
    assert bench.toy.heard.count("tick") == 2


@on_a_loop
async def test_peer_that_is_dropped_is_told_to_the_server(bench: Bench) -> None:
    await bench.post("d")

    assert bench.dropped == [1]


@on_a_loop
async def test_loop_stays_awake_behind_an_answer_until_more_comes(bench: Bench) -> None:
    """On a clock that stands still it would look for ever, but for the bound of looks."""
    looks = 0

    class Counted(Vigil):
        def look(self, now: float) -> bool:
            nonlocal looks
            looks += 1
            return super().look(now)

    bench.turn.vigil = Counted()
    await bench.post("w1")
    assert bench.sent == ["w1"]
    assert looks > 1

    await bench.post("w2")
    looks = 0
    bench.turn.stop()
    await turns()
    assert looks <= 1


@on_a_loop
async def test_loop_sleeps_while_the_disk_is_at_work(bench: Bench) -> None:
    """The sync lane needs the core more than a look does."""
    bench.turn.vigil = vigil = Vigil()
    await bench.post("s1")
    assert bench.sent == []
    assert not vigil.look(bench.clock.seconds())
    await bench.sync.run()
    assert bench.sent == ["s1"]
    assert vigil.mood is Mood.TRYING
    assert vigil.look(bench.clock.seconds())
